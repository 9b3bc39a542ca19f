"""From the pipes of the run into its logs."""

from __future__ import annotations

import errno
import os
import struct
import time

from .reading import size_of
from .words import FULL, GAPS_MAX, MOVES, OFTEN, OFTEN_S, PAUSE_MAX_S, PIECE, PIPE, TURNS
from .writing import WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .attempts import Attempt

_splice: Any = getattr(os, "splice", None)  # from Python 3.10 on
SPLICE_F_NONBLOCK = 2


class LogWriter:
    """The one writer of a log. A full disk never blocks the run:
    bytes that do not fit are counted, and a line in the log says so once there is room again.
    A log that somebody cuts is written on from its new end. Of both, `on_gap` is told."""

    def __init__(self, att: Attempt, name: str, on_gap: Callable[[dict], object]) -> None:
        self.path, self.name, self.on_gap = att.path(name), name, on_gap
        self.fd = os.open(self.path, WRITE, 0o644)  # without O_APPEND: the kernel moves no pages there
        os.lseek(self.fd, 0, os.SEEK_END)
        self.mark = b""  # rest of a gap mark that is not written yet
        self.lost = 0  # bytes dropped since the last mark
        self.cuts = 0

    @property
    def behind(self) -> bool:
        """Is a mark due before anything else?"""
        return bool(self.lost or self.mark)

    def write(self, data: bytes) -> None:
        """Append, after the mark that is due. What does not fit is counted as lost."""
        self.mind_cut()
        if self.lost and not self.mark:
            self.mark = b"\n[stoker: %d bytes of output lost here: disk full]\n" % self.lost
            marked, self.lost = self.lost, 0
            self.mark = self._append(self.mark)
            if self.mark and self.mark.startswith(b"\n[stoker"):  # not a byte of it fitted: no room yet
                self.lost, self.mark = marked, b""
            else:
                self.on_gap({"bytes": marked, "offset": size_of(self.path), "log": self.name})
        elif self.mark:
            self.mark = self._append(self.mark)
        if self.behind:
            self.lost += len(data)
            return
        self.lost += len(self._append(data))

    def _append(self, data: bytes) -> bytes:
        """What could not be written."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.fd, view):]
            except OSError:
                break
        return bytes(view)

    def mind_cut(self) -> None:
        """Somebody may have made the log shorter: no hole shall be left where it was."""
        try:
            size, here = os.fstat(self.fd).st_size, os.lseek(self.fd, 0, os.SEEK_CUR)
            if size >= here:
                return
            os.lseek(self.fd, size, os.SEEK_SET)
        except OSError:  # a file system that is gone: what comes is lost, but the run is not stopped by it
            return
        self.cuts += 1
        if self.cuts <= GAPS_MAX:  # a run may do it all the time
            self.on_gap(
                {
                    "bytes": here - size,
                    "offset": size,
                    "log": self.name,
                    "why": "another program truncated the log",
                }
            )


class Moves:
    """A number in a file of the attempt, odd while bytes are on their way from a pipe into a log.
    Whoever wants to know how much was printed adds what the pipe and the log hold, and looks at the number
    before and after."""

    def __init__(self, att: Attempt) -> None:
        self.fd, self.count = os.open(att.path(MOVES), WRITE, 0o644), 0
        self._write()

    def begin(self) -> None:
        """Before bytes are taken out of a pipe."""
        self.count |= 1
        self._write()

    def end(self) -> None:
        """They are in the log. Also said for a holder that died between the two."""
        self.count = (self.count | 1) + 1
        self._write()

    def _write(self) -> None:
        try:
            os.pwrite(self.fd, struct.pack("<Q", self.count), 0)
        except OSError:  # a disk without room for eight bytes: nobody can be told
            pass


class Turns:
    """The order in which bytes came into the two logs:
    a number in a file at each change from one log to the other, twice the size of the log that is left, and 1
    more if that is the one of standard error. Written before the first byte after the change."""

    def __init__(self, att: Attempt, writers: list[LogWriter]) -> None:
        self.path, self.writers = att.path(TURNS), writers
        self.fd = os.open(self.path, WRITE | os.O_APPEND, 0o644)
        self.now = 0

    def take(self, writer: LogWriter, source: int) -> None:
        """Bytes go into the log of `writer` next, if there are any in `source`."""
        which = self.writers.index(writer)
        if which == self.now or not bytes_waiting(source):
            return
        left = self.writers[self.now]
        try:
            left.mind_cut()
            os.write(self.fd, struct.pack("<Q", 2 * os.lseek(left.fd, 0, os.SEEK_CUR) + self.now))
        except OSError:  # a full disk: the order of these is not known
            pass
        self.now = which

    def adopt(self) -> None:
        """In the agent proper: go on where the holder stopped."""
        found = size_of(self.path) // 8
        if found:
            with open(self.path, "rb") as f:
                self.now = 1 - struct.unpack("<Q", f.read()[8 * found - 8:8 * found])[0] % 2


class Outlet:
    """The reading end of a pipe that the run prints into, and the way from there into a log.

    The kernel moves the pages (splice): from the run's pipe into one of ours, from there into the log, so
    that the run never waits for our disk while its pipe has room.
    Both pipes and the log's position outlive the holder in the agent proper, which goes on where it stopped.
    Where there is no splice (before Python 3.10, odd file systems) the bytes are read and written.
    """

    def __init__(self, source: int, writer: LogWriter, moves: Moves, turns: Turns | None) -> None:
        self.source, self.writer, self.moves, self.turns = source, writer, moves, turns
        self.between: tuple[int, int] | None = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) if _splice else None
        self.moved_at = self.pause = 0.0
        self.small = 0  # small pieces in a row
        self.due = 0.0  # when to move again, if not at the next word

    def descriptors(self) -> set[int]:
        turns = self.turns.fd if self.turns else -1
        return {self.source, self.writer.fd, self.moves.fd, turns, *(self.between or ())} - {-1}

    def rest(self, size: int) -> float:
        """After a move: when the next one is due; 0 for at the next word.
        A run that prints little and often costs a waking each time, so the pauses become longer;
        one that prints much is never kept waiting, nor is a line after a silence."""
        now = time.monotonic()
        if now - self.moved_at > OFTEN_S or size > PIPE // 2:
            self.pause, self.small = 0.0, 0
        elif size > PIPE // 8:
            self.pause, self.small = (self.pause / 2 if self.pause > 0.001 else 0.0), 0
        elif 0 < size < PIPE // 64:
            self.small += 1
            if self.small > OFTEN:
                self.pause = min(max(2 * self.pause, 0.001), PAUSE_MAX_S)
        if size:
            self.moved_at = now
        self.due = now + self.pause if size and self.pause else 0.0
        return self.due

    def move(self) -> int | None:
        """Move what the pipe holds into the log. Gives how many bytes;
        None at the end, when nobody can write any more."""
        if self.source < 0:
            return None
        if self.turns:
            self.turns.take(self.writer, self.source)
        self.moves.begin()
        try:
            return (
                self._splice(self.between)
                if self.between and not self.writer.behind
                else self._copy(self.source, PIECE)
            )
        finally:
            self.moves.end()

    def _splice(self, between: tuple[int, int]) -> int | None:
        try:
            size = _splice(self.source, between[1], PIPE, flags=SPLICE_F_NONBLOCK)
        except BlockingIOError:
            return 0
        except OSError:
            self._stop_splicing()
            return self._copy(self.source, PIECE)
        if not size:
            return None
        self._empty_between(between, size)
        return size

    def _empty_between(self, between: tuple[int, int], left: int) -> None:
        self.writer.mind_cut()
        try:
            while left:
                moved = _splice(between[0], self.writer.fd, left)
                if not moved:
                    raise OSError(errno.EINVAL, "nothing was moved")
                left -= moved
        except OSError as e:  # the writer knows what to do on a full disk
            while left > 0:
                left -= self._copy(between[0], min(left, PIECE)) or left
            if e.errno not in FULL:
                self._stop_splicing()

    def _stop_splicing(self) -> None:
        for fd in self.between or ():
            os.close(fd)
        self.between = None

    def _copy(self, source: int, limit: int) -> int | None:
        try:
            data = os.read(source, limit)
        except BlockingIOError:
            return 0
        if not data:
            return None
        self.writer.write(data)
        return len(data)

    def adopt(self, on_gap: Callable[[dict], object]) -> None:
        """In the agent proper, once the holder is dead:
        first what it had taken out of the pipe and not written."""
        self.writer.on_gap = on_gap
        if self.turns:
            self.turns.adopt()
        if self.between:
            self._empty_between(self.between, bytes_waiting(self.between[0]))
        self.moves.end()

    def finish(self) -> None:
        """Move what is there now, and no more: somebody else's process may print into the pipe for ever.
        Then close it."""
        left = bytes_waiting(self.source) if self.source >= 0 else 0
        while left > 0:
            left -= self.move() or left
        self.close()

    def close(self) -> None:
        """Nothing is read any more: who still prints gets SIGPIPE. Twice is harmless."""
        self.due = 0.0
        if self.source >= 0:
            os.close(self.source)
            self.source = -1
        if self.between:
            self._stop_splicing()


def open_outlet(writer: LogWriter, moves: Moves, turns: Turns | None) -> tuple[Outlet, int]:
    """A pipe into a log, and the end of it that the run gets.
    The run may open that end again by name (/dev/stderr): nothing is emptied by that, as a file would be."""
    source, target = os.pipe()
    os.set_blocking(source, False)
    return Outlet(source, writer, moves, turns), target


def bytes_waiting(fd: int) -> int:
    """What a pipe holds now."""
    import fcntl
    import termios
    return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0]
