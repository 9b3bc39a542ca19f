"""Reads logs by bytes through a back end: from an offset, the last lines, or since a time.
Never all of a large one."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stoker.backends.base import Backend, LogStream
from stoker.base import reading, rundir
from stoker.base.errors import StokerError, TargetError
from stoker.hosts.base import ANSWER_MAX
from stoker.plane import run_folder
from stoker.plane.run_folder import RunFolder

PIECE = 1 << 16
FIRST_BLOCK = 1 << 16
LINE_ALLOWANCE = 4096  # bytes a line that `tail` is ready to look back for
TAIL_MIN = 1 << 20
END_S = 20.0  # for the exit code of a stream whose bytes have ended
KILLED = 128  # an exit code above it: a signal ended the program
PAUSE_FIRST_S, PAUSE_MAX_S, GIVE_UP_S = 0.1, 5.0, 120.0  # of connecting again
STEADY_S = 10.0  # a connection that stood so long was a good one
TELEMETRY_MAX = 64 << 20  # bytes: half a year


class Pieces:
    """The bytes of a log as they arrive. Another thread may call `close` while `next` blocks; this also ends
    the source.
    The first `next` calls `find` with a function that tells whether `close` was called; `find` returns a
    function that opens the log at an offset. A stream that was cut is opened again at the same byte;
    raises StokerError if this fails for GIVE_UP_S. `patient`: so is one that could not be opened yet, for
    a reader that waits for an attempt; without it, the first failure is raised at once."""

    def __init__(
        self, find: Callable[[Callable[[], bool]], Callable[[int], LogStream] | None], patient: bool = False
    ) -> None:
        self._find = find
        self._open: Callable[[int], LogStream] | None = None
        self._lock = threading.Lock()
        self._stream: LogStream | None = None
        self._closed = threading.Event()
        self._tries_again = patient  # or it was open once
        self._given = 0  # bytes
        self._since = 0.0  # when the stream was opened
        self._cut_at = 0.0  # since when it is cut, or cut again and again

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        while not self._closed.is_set():
            try:
                self._open = self._open or self._find(self._closed.is_set)
                if self._open is None:
                    break
                stream = self._stream or self._begin(self._open)
                data = _read(stream)
                if data:
                    self._given, self._cut_at = self._given + len(data), 0.0
                    return data
                if self._closed.is_set() or whole(stream):
                    break
                self._wait(TargetError("The connection to the machine is cut repeatedly.", retry=True))
            except TargetError as e:
                if not (e.retry and self._tries_again):
                    raise
                self._wait(e)
        self.close()
        raise StopIteration

    def _begin(self, open_: Callable[[int], LogStream]) -> LogStream:
        """A stream from where the last one broke off. Raises TargetError."""
        stream = open_(self._given)
        self._tries_again, self._since = True, time.monotonic()
        with self._lock:
            self._stream = stream
        if self._closed.is_set():
            stream.close()
        return stream

    def _wait(self, failure: TargetError) -> None:
        """A pause before the next try. Raises the failure when there was nothing for GIVE_UP_S."""
        self._let_go()
        now = time.monotonic()
        # it stood for a while, also if nothing was printed meanwhile
        if self._since and now - self._since > STEADY_S:
            self._cut_at = 0.0
        self._since, self._cut_at = 0.0, self._cut_at or now
        if now - self._cut_at > GIVE_UP_S:
            raise TargetError(failure.message, hint=failure.hint, retry=False)
        self._closed.wait(min(PAUSE_MAX_S, PAUSE_FIRST_S + (now - self._cut_at) / 2))

    def _let_go(self) -> None:
        with self._lock:
            stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def close(self) -> None:
        """End the iteration and its source."""
        self._closed.set()
        self._let_go()


def _read(stream: LogStream) -> bytes:
    try:
        return stream.stdout.read(PIECE) or b""
    except (OSError, ValueError):  # closed under our hands
        return b""


def whole(stream: LogStream) -> bool:
    """Check that a stream ended normally, and not because the connection was cut. Raises TargetError if
    the program at its other end failed."""
    try:
        code = stream.wait(END_S)
    except TargetError as e:
        if e.retry:
            return False
        raise
    if code == 0:
        return True
    if code is None or code > KILLED:
        return False
    said = stream.stderr_tail().strip().splitlines()
    raise TargetError(
        f"The log could not be read completely: {said[-1] if said else f'exit code {code}'}.", retry=False
    )


@dataclass(frozen=True)
class Log:
    """One stream ("out", "err") of one attempt, or "both"."""

    backend: Backend
    run_id: str
    attempt: int
    which: str

    def size(self) -> int:
        """Current number of bytes, as reported by its machine."""
        exit_ = f"{rundir.ATTEMPTS}/{self.attempt}/{rundir.EXIT}"
        folder = RunFolder.ask(self.backend, self.run_id, [run_folder.whole(exit_)])
        if folder.seen is not None and folder.seen.attempt == self.attempt:
            return (folder.seen.out_bytes if self.which == "out" else folder.seen.err_bytes) or 0
        return (folder.json(exit_) or {}).get(f"{self.which}_bytes") or 0

    def read(self, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset`."""
        with self.backend.read(self.run_id, self.attempt, self.which, offset, limit, False) as stream:
            pieces = bytearray()
            while len(pieces) < limit and (data := stream.stdout.read(min(PIECE, limit - len(pieces)))):
                pieces += data
            if len(pieces) < limit and not whole(stream):
                raise TargetError(
                    "The connection was cut while the log was read.",
                    hint="The run is not affected. Try again.",
                    retry=True,
                )
        return bytes(pieces)

    def open(self, offset: int, follow: bool, end: int | None = None) -> LogStream:
        """LogStream from `offset` to `end`, if given; with `follow`, until the attempt has ended."""
        limit = None if end is None else max(0, end - offset)
        return self.backend.read(self.run_id, self.attempt, self.which, offset, limit, follow)

    def open_both(
        self, offset: int, given: int, follow: bool, *, tail: int | None, since: float | None
    ) -> LogStream:
        """LogStream both logs as one text of whole lines: from `offset`, from `tail` lines before the end, or
        since a time; skips the first `given` bytes of this text. Raises TargetError if this position
        cannot be found again."""
        if tail is not None and given:
            raise TargetError(
                "The connection was lost while the last lines were read.",
                hint="Repeat the command; nothing is lost.",
            )
        begins = (0, 0)
        if since is not None:
            out, err = (
                Log(self.backend, self.run_id, self.attempt, which).since_offset(since)
                for which in ("out", "err")
            )
            begins = (out, err)
        return self.backend.read(
            self.run_id, self.attempt, "both", offset + given, None, follow, tail=tail, begins=begins
        )

    def tail_offset(self, size: int, lines: int) -> int:
        """Offset at which the last `lines` lines of `size` bytes begin. Reads back in growing blocks, at
        most 4 KiB per line (and at least 1 MiB)."""
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
        """Offset of the log at `moment` (Unix time) according to the telemetry, moved to the begin of the
        next line."""
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
        """Records of telemetry.jsonl, oldest first; empty if the file does not exist."""
        with tempfile.TemporaryDirectory(prefix="stoker-") as folder:
            copy = Path(folder) / rundir.TELEMETRY
            try:
                self.backend.fetch(
                    self.run_id, f"{rundir.ATTEMPTS}/{self.attempt}/{rundir.TELEMETRY}", copy, 8 * ANSWER_MAX
                )
            except StokerError:
                return
            yield from reading.read_lines(copy, TELEMETRY_MAX)


def last_lines(data: bytes, lines: int) -> int:
    """Offset in `data` at which its last `lines` lines begin; a final newline ends the last line."""
    at = len(data) - data.endswith(b"\n")
    for _ in range(lines):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return 0
    return at + 1
