"""Request bodies, with a bound on each, on all that are held at once,
and on how long a client may be silent."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

from starlette.requests import Request

from stoker.base.errors import InvalidSpec, ServerError

BODY_MAX = 64 << 20  # a submit with its environment and standard input
SMALL_BODY_MAX = 1 << 20  # of any other request
FREE_BYTES = 64 << 10  # of a body are read at once; for more it needs one of the places
PLACES = 2  # so many larger bodies are held at the same time: the others wait unread
PLACE_S, SILENCE_S = 60.0, 10.0  # how long a body waits for a place, and how long it may stand still
VALUES_MAX = 4_000_000  # commas and brackets: a body of nothing but empty lists takes twenty times its size

_places = asyncio.Semaphore(PLACES)


class TooLarge(InvalidSpec):
    """The request is too large."""

    http_status = 413


class TooSlow(InvalidSpec):
    """The request did not arrive in time."""

    http_status = 408


class Busy(ServerError):
    """The server already holds the maximum number of large requests."""

    http_status = 503


@contextlib.asynccontextmanager
async def body_of(request: Request) -> AsyncIterator[dict]:
    """Context with the JSON object of the request, {} without a body. Releases the memory reservation at
    the end."""
    limit = BODY_MAX if request.url.path == "/v1/runs" else SMALL_BODY_MAX
    told = request.headers.get("content-length", "")
    if told.isdigit() and int(told) > limit:
        raise _too_large(limit)
    async with contextlib.AsyncExitStack() as held:
        raw, pieces, placed = bytearray(), request.stream(), False
        while (piece := await _next(pieces)) is not None:
            raw += piece
            if len(raw) > limit:
                raise _too_large(limit)
            if len(raw) > FREE_BYTES and not placed:
                await _take_place(held)
                placed = True
        found = _parsed(raw)
        del raw
        yield found


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    try:
        async with asyncio.timeout(SILENCE_S):
            return await anext(pieces, None)
    except TimeoutError as e:
        raise TooSlow(f"The rest of the request did not arrive within {SILENCE_S:g} s.") from e


async def _take_place(held: contextlib.AsyncExitStack) -> None:
    try:
        async with asyncio.timeout(PLACE_S):
            await held.enter_async_context(_places)
    except TimeoutError as e:
        raise Busy(hint="Try again in a moment.") from e


def _parsed(raw: bytearray) -> dict:
    if len(raw) > SMALL_BODY_MAX and sum(raw.count(sign) for sign in (b",", b"[", b"{")) > VALUES_MAX:
        raise TooLarge(
            "The command, its environment variables or its input are too large for the Stoker server "
            f"(more than {VALUES_MAX:,} values).",
            hint="Save large input in a file, and let the script open this file.",
        )
    try:
        found = json.loads(raw) if raw else {}
    except (ValueError, RecursionError) as e:
        raise InvalidSpec(f"The request is not JSON: {e}.") from e
    if not isinstance(found, dict):
        raise InvalidSpec("The request is not a JSON object.")
    return found


def _too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"The request is larger than {limit >> 20} MiB.",
        hint="Save large input in a file, and let the script open this file.",
    )
