"""Answers that go on: raw log bytes and server-sent events, one blocking iterator a client, closed when the
client leaves."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, Protocol

import anyio
from anyio.to_thread import run_sync
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from stoker.base.errors import StokerError

STREAMS = anyio.CapacityLimiter(4096)  # streams at once; each holds a thread while it waits
PATIENCE_S = 0.3  # for an error that should become the answer; then the answer begins
_END = object()

log = logging.getLogger(__name__)


class ClosableIterator(Protocol):
    """Pieces of an answer, made as they are asked for."""

    def __next__(self) -> Any:
        """The next piece."""

    def close(self) -> None:
        """No more of them are wanted; called from another thread."""


class ByteStream(Response):
    """A streamed answer of bytes. Asks for the next piece only after the last piece was sent, so a slow
    client slows the source down."""

    media_type = "application/octet-stream"

    def __init__(self, pieces: ClosableIterator) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending, leaving = asyncio.ensure_future(self._send_all(send)), asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            sending.cancel()
            leaving.cancel()
            await asyncio.shield(run_sync(self._pieces.close, limiter=STREAMS))

    async def _send_all(self, send: Send) -> None:
        coming = asyncio.ensure_future(self._next())
        await asyncio.wait({coming}, timeout=PATIENCE_S)
        if coming.done():
            coming.result()
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            piece = await coming
            while piece is not _END:
                await send({"type": "http.response.body", "body": self.written(piece), "more_body": True})
                piece = await self._next()
        except StokerError as e:
            # too late to answer with it: the client sees an answer without an end, and asks what is wrong
            log.warning("an answer broke off: %s", e.message)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _next(self) -> Any:
        return await run_sync(next, self._pieces, _END, limiter=STREAMS, abandon_on_cancel=True)

    def written(self, piece: Any) -> bytes:
        """The bytes to send for one piece."""
        return piece


class EventStream(ByteStream):
    """Server-sent events. A dict is sent as one `data:` line of JSON, and None as a comment that keeps the
    connection alive."""

    media_type = "text/event-stream"

    def written(self, piece: dict | None) -> bytes:
        if piece is None:
            return b":\n\n"
        return b"data: " + json.dumps(piece, separators=(",", ":")).encode("ascii") + b"\n\n"


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
