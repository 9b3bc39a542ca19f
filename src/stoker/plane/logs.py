"""Reads logs by bytes through a back end: from an offset, the last lines, or since a time. Never all of a large one."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stoker.backends.base import Backend
from stoker.base import reading, rundir
from stoker.base.errors import StokerError
from stoker.hosts.base import Stream

PIECE = 1 << 16
FIRST_BLOCK = 1 << 16
LINE_ALLOWANCE = 4096  # bytes a line that `tail` is ready to look back for
TAIL_MIN = 1 << 20
TELEMETRY_MAX = 64 << 20  # bytes: half a year


class Pieces:
    """Bytes of a log as they come. `close` may come from another thread while `next` blocks, and ends what stands behind it.

    `opened` is called by the first `next`; it is handed a question that tells whether somebody has closed us meanwhile.
    """

    def __init__(self, opened: Callable[[Callable[[], bool]], Stream | None]) -> None:
        self._open = opened
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        stream = self._stream or self._begin()
        if stream is None or self._closed:
            raise StopIteration
        try:
            data = stream.stdout.read(PIECE)
        except (OSError, ValueError):  # closed under our hands
            data = b""
        if not data:
            self.close()
            raise StopIteration
        return data

    def _begin(self) -> Stream | None:
        stream = None if self._closed else self._open(lambda: self._closed)
        with self._lock:
            self._stream = stream
            late = self._closed
        if late and stream is not None:
            stream.close()
        return stream

    def close(self) -> None:
        """No more."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            stream = self._stream
        if stream is not None:
            stream.close()


@dataclass(frozen=True)
class Log:
    """One stream ("out", "err") of one attempt."""

    backend: Backend
    run_id: str
    attempt: int
    which: str

    def read(self, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset`."""
        with self.backend.read(self.run_id, self.attempt, self.which, offset, limit, False) as stream:
            pieces = []
            while data := stream.stdout.read(PIECE):
                pieces.append(data)
        return b"".join(pieces)

    def open(self, offset: int, follow: bool, end: int | None = None) -> Stream:
        """All from `offset`, before `end` if that is given; with `follow` until the attempt has ended."""
        limit = None if end is None else max(0, end - offset)
        return self.backend.read(self.run_id, self.attempt, self.which, offset, limit, follow)

    def tail_offset(self, size: int, lines: int) -> int:
        """Where the last `lines` lines of `size` bytes begin. Looks back in growing blocks, 4 KiB a line and 1 MiB at least, no further."""
        if lines <= 0 or size <= 0:
            return size
        allowed = max(TAIL_MIN, lines * LINE_ALLOWANCE)
        start, block, seen = size, FIRST_BLOCK, b""
        while start > 0 and size - start < allowed and seen[:-1].count(b"\n") < lines:
            before = max(0, start - block, size - allowed)
            seen = self.read(before, start - before) + seen
            start, block = before, block * 4
        return start + last_lines(seen, lines)

    def since_offset(self, moment: float) -> int:
        """Where the log stood at `moment` (Unix time), as the telemetry remembers it, at the next line's begin."""
        offset = 0
        for record in self.telemetry():
            if (record.get("at") or 0) > moment:
                break
            offset = record.get(f"{self.which}_bytes") or offset
        if offset == 0:
            return 0
        line_end = self.read(offset - 1, FIRST_BLOCK).find(b"\n")
        return offset + line_end if line_end >= 0 else offset

    def telemetry(self) -> Iterator[dict]:
        """The records of telemetry.jsonl, oldest first; none where there is no such file yet."""
        with tempfile.TemporaryDirectory(prefix="stoker-") as folder:
            copy = Path(folder) / rundir.TELEMETRY
            try:
                self.backend.fetch(self.run_id, f"{rundir.ATTEMPTS}/{self.attempt}/{rundir.TELEMETRY}", copy)
            except StokerError:
                return
            yield from reading.read_lines(copy, TELEMETRY_MAX)


def last_lines(data: bytes, lines: int) -> int:
    """Where in `data` its last `lines` lines begin; a newline at the very end closes the last one."""
    at = len(data) - data.endswith(b"\n")
    for _ in range(lines):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return 0
    return at + 1
