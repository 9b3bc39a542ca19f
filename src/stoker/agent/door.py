"""The door of a run: input, window size and signals come in through it.

Frames of `attach` and of the holder's socket: kind (1 byte), length (4 bytes, big-endian), payload.
- To the run: `i` input bytes · `e` end of input · `w` {"rows", "cols"} · `s` name of a signal ("INT") to
  the foreground process group · `k` begin the stop ladder without INT · `n` no input: read the run folder
  again.
- From `attach`: `m` JSON {"attempt", "tty", "out", "err"}, first · `o` and `r` bytes of out.log and err.log
  · `x` exit.json, last.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import struct
import termios
import time
from abc import ABC, abstractmethod

from .spawning import set_window
from .words import FEED_MAX, FRAME_MAX, SOCKET
from .writing import log_exception, unlink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempts import Attempt


class Door(ABC):
    """The side of the holder that callers talk to; what they type waits here until the run takes it."""

    def __init__(self, att: Attempt) -> None:
        self.att = att
        self.poll = select.poll()
        self.on: dict = {}  # fd -> what to do when it is ready
        self.master = self.slave = self.feed_fd = -1
        self.feed = bytearray()
        self.fed = 0  # bytes that were written into the pipe of the run's input
        self.rest_fd = -1  # that pipe's reading end, once its writing end is closed
        self.feed_ends = False
        self.feed_retry = 0.0
        self.callers: dict[int, tuple] = {}
        self.interrupt: dict | None = None  # the last signal that a caller passed on

    @abstractmethod
    def _tell(self, message: dict) -> None:
        """To the agent proper."""

    @abstractmethod
    def _signal(self, sig: int) -> None:
        """To the run."""

    def _watch(self, fd: int, events: int, act: object) -> None:
        self.poll.register(fd, events)
        self.on[fd] = act

    def _unwatch(self, fd: int) -> None:
        if self.on.pop(fd, None) is not None:
            self.poll.unregister(fd)

    def _open_door(self) -> None:
        door = None
        try:
            unlink(self.att.path(SOCKET))
            door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            before = os.umask(0o177)
            try:
                door.bind(self.att.path(SOCKET))
            finally:
                os.umask(before)
            door.listen(16)
            door.setblocking(False)
        except OSError:  # no sockets on this file system: wishes are still found in the folder, within a tick
            log_exception()
            if door is not None:
                door.close()
            return
        self._watch(door.fileno(), select.POLLIN, lambda _events: self._caller(door))

    def _caller(self, door: socket.socket) -> None:
        try:
            conn, _ = door.accept()
        except OSError:
            return
        conn.setblocking(False)
        self.callers[conn.fileno()] = (conn, bytearray())
        self._watch(conn.fileno(), select.POLLIN, lambda _events: self._caller_says(conn))
        self._backpressure()

    def _caller_says(self, conn: socket.socket) -> None:
        fd = conn.fileno()
        buffer = self.callers[fd][1]
        try:
            data = conn.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        buffer += data
        good = True
        while good and len(buffer) >= 5:
            kind, size = struct.unpack_from(">cI", buffer)
            if size > FRAME_MAX:
                good = False
                break
            if len(buffer) < 5 + size:
                break
            payload = bytes(buffer[5:5 + size])
            del buffer[:5 + size]
            self._frame(kind, payload)
        if not data or not good:  # a caller that leaves does not end the input: others may come
            self._unwatch(fd)
            del self.callers[fd]
            conn.close()

    def _frame(self, kind: bytes, payload: bytes) -> None:
        if kind == b"i":
            if self.feed_fd >= 0 and not self.feed_ends:
                self._note_interrupt_key(payload)
                self.feed += payload
                self._feed()
        elif kind == b"e":
            self._end_input()
        elif kind == b"w":
            self._resize(payload)
        elif kind == b"s":
            self._pass_on(payload)
        elif kind == b"k":
            self._tell({"m": "kill"})
        elif kind == b"n":
            self._tell({"m": "look"})

    def _pass_on(self, name: bytes) -> None:
        sig = getattr(signal, "SIG" + name.decode("ascii", "replace").upper().replace("SIG", "", 1), None)
        if not isinstance(sig, signal.Signals):
            return
        self._interrupted(int(sig))
        self._signal(int(sig))

    def _interrupted(self, sig: int) -> None:
        self.interrupt = {"signal": sig, "mono": time.monotonic()}
        self._tell({"m": "passed", "interrupt": self.interrupt})

    def _note_interrupt_key(self, data: bytes) -> None:
        """Ctrl-C and Ctrl-\\ typed into the pty become signals in the kernel;
        remember that a person sent them."""
        if self.slave < 0 or not (b"\x03" in data or b"\x1c" in data):
            return
        try:
            if termios.tcgetattr(self.slave)[3] & termios.ISIG:
                self._interrupted(int(signal.SIGINT if b"\x03" in data else signal.SIGQUIT))
        except termios.error:
            pass

    def _resize(self, payload: bytes) -> None:
        if self.master < 0:
            return
        try:
            size = json.loads(payload.decode())
            set_window(self.master, int(size["rows"]), int(size["cols"]))
        except (OSError, ValueError, KeyError, TypeError, struct.error):
            pass

    def _end_input(self) -> None:
        if self.feed_fd < 0 or self.feed_ends:
            return
        # what a person types: Ctrl-D, twice when the line has begun; the terminal stays usable
        if self.slave >= 0:
            self.feed += b"\x04" if not self.feed or self.feed.endswith(b"\n") else b"\x04\x04"
        else:
            self.feed_ends = True
        self._feed()

    def _feed(self) -> None:
        """Hand input to the run as fast as it takes it; callers wait while more than FEED_MAX is held."""
        self.feed_retry = 0.0
        while self.feed and self.feed_fd >= 0:
            try:
                written = os.write(self.feed_fd, memoryview(self.feed)[:4096].tobytes())
                del self.feed[:written]
                self.fed += written
            except BlockingIOError:
                break
            except OSError:  # nobody reads it any more
                self._close_feed()
        if self.feed and self.slave >= 0:
            self.feed_retry = time.monotonic() + 0.02  # a pty says it is writable when it is not
        elif self.feed and self.feed_fd not in self.on:
            self._watch(self.feed_fd, select.POLLOUT, lambda _events: self._feed())
        elif not self.feed and self.slave < 0 and self.feed_fd >= 0:
            self._unwatch(self.feed_fd)
            if self.feed_ends:
                self._close_feed()
        self._backpressure()

    def _backpressure(self) -> None:
        events = select.POLLIN if len(self.feed) < FEED_MAX else 0
        for fd in self.callers:
            self.poll.modify(fd, events)

    def _close_feed(self) -> None:
        self.feed.clear()
        self.feed_retry = 0.0
        if self.feed_fd >= 0 and self.feed_fd != self.master:
            self._unwatch(self.feed_fd)
            self.rest_fd = _reading_end(self.feed_fd)
            os.close(self.feed_fd)
        self.feed_fd = -1
        self._backpressure()

    def _input_read(self) -> int | None:
        """Bytes of input that the run has read from its pipe; None on a terminal, or if this is not known."""
        fd = self.feed_fd if self.feed_fd >= 0 else self.rest_fd
        if fd < 0 or self.slave >= 0:
            return None
        try:
            left = fcntl.ioctl(fd, termios.FIONREAD, bytes(4))
        except OSError:
            return None
        return self.fed - int(struct.unpack("i", left)[0])


def _reading_end(pipe: int) -> int:
    """A reading end of the pipe with this writing end: what is in the pipe can still be counted. -1 without
    /proc."""
    try:
        return os.open(f"/proc/self/fd/{pipe}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1
