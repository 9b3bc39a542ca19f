"""The output of a run that came back, as one text:
what each life printed up to the image that the next one went on from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoker.client import Client, Pieces


def whole_log(client: Client, run: dict) -> Iterator[bytes]:
    """All of standard output; `run` is the result of `show`. For a run that never resumed, the log of its
    newest attempt."""
    parts = (run.get("resume") or {}).get("log") or [(None, None)]
    for attempt, count in parts:
        yield from _first(client.logs(run["id"], attempt=attempt), count)


def _first(pieces: Pieces, count: int | None) -> Iterator[bytes]:
    for piece in pieces:
        if count is not None and len(piece) >= count:
            yield piece[:count]
            pieces.close()
            return
        yield piece
        count = None if count is None else count - len(piece)
