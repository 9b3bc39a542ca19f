"""The local terminal while a run is attached: raw input, cooked output, and always given back as it was.

The far terminal echoes, edits lines and turns Ctrl-C into SIGINT, so here every key goes through untouched.
Output post-processing stays on here because it is off there: the log holds the script's own bytes.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import re
import signal
import sys
import termios
from collections.abc import Iterator

CTRL_C = 0x03
CTRL_Z = 0x1A


def die_of_interrupt(everybody: bool) -> None:
    """End this process by SIGINT instead of an exit code, as Python does. Only then a shell ends the loop or
    the script around it.
    everybody: send SIGINT to the whole foreground group, because the shell of that script must also
    receive it. The key was passed on to the run, so the terminal sent no signal."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        if everybody and os.tcgetpgrp(0) == os.getpgrp():
            os.killpg(0, signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)


class Terminal:
    """The terminal of a file descriptor. `raw()` and `restore()` may be called in any order and any number
    of times."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._saved: list | None = None
        self._watcher: _Watcher | None = None

    def size(self) -> tuple[int, int]:
        """Rows and columns; (24, 80) if unknown."""
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(self.fd)
            if rows and columns:
                return rows, columns
        return 24, 80

    def foreground(self) -> bool:
        """True if this process may read keys, because it is not a background job of a shell."""
        try:
            return os.tcgetpgrp(self.fd) == os.getpgrp()
        except OSError as e:
            # not the terminal of our session: no shell controls who reads from it
            return e.errno == errno.ENOTTY

    def raw(self) -> bool:
        """Switch the terminal to raw input; returns False if this is not possible now (in the background,
        or gone)."""
        if not self.foreground():
            return False
        try:
            termios.tcsetattr(self.fd, termios.TCSADRAIN, raw_of(self.arm()))
        except (termios.error, OSError):
            return False
        return True

    def arm(self) -> list:
        """Remember the terminal settings, and make sure that they are restored at the end. Call this
        before threads start, because it forks. Returns the settings. Raises termios.error."""
        if self._saved is None:
            self._saved = termios.tcgetattr(self.fd)
            self._watcher = _Watcher.start(self.fd, self._saved, raw_of(self._saved))
            atexit.register(self.restore)
        return self._saved

    def cooked(self) -> None:
        """Context with the original settings; `raw()` may follow."""
        if self._saved is not None:
            with _may_write(), contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(self.fd, termios.TCSADRAIN, self._saved)

    def restore(self) -> None:
        """Restore the original settings. Has no effect if the terminal was never changed, or is gone."""
        if self._saved is None:
            return
        self.cooked()
        self._saved = None
        if self._watcher is not None:
            self._watcher.end()
            self._watcher = None
        atexit.unregister(self.restore)


def raw_of(attributes: list) -> list:
    """Terminal attributes with raw input; output processing and everything else is unchanged."""
    iflag, oflag, cflag, lflag, ispeed, ospeed, cc = attributes
    iflag &= ~(
        termios.BRKINT
        | termios.ICRNL
        | termios.INLCR
        | termios.IGNCR
        | termios.INPCK
        | termios.ISTRIP
        | termios.IXON
    )
    lflag &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
    cflag = (cflag & ~(termios.CSIZE | termios.PARENB)) | termios.CS8
    cc = list(cc)
    cc[termios.VMIN], cc[termios.VTIME] = 1, 0
    return [iflag, oflag, cflag, lflag, ispeed, ospeed, cc]


@contextlib.contextmanager
def _may_write() -> Iterator[None]:
    """A background process that sets a terminal is stopped by SIGTTOU, unless it ignores that signal."""
    before = None
    with contextlib.suppress(ValueError):  # not the main thread: the disposition is left alone
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTTOU, before)


class _Watcher:
    """A tiny child that gives the terminal back if this process is killed without a chance to do it."""

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid = pid
        self.pipe = pipe

    @classmethod
    def start(cls, fd: int, saved: list, raw: list) -> _Watcher | None:
        """None if the process cannot be created: the watcher is optional."""
        try:
            read_end, write_end = os.pipe()
            pid = os.fork()
        except OSError:
            return None
        if pid == 0:
            try:
                _watch(fd, read_end, saved, raw)
            finally:
                os._exit(0)
        os.close(read_end)
        return cls(pid, write_end)

    def end(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.pipe)
            os.waitpid(self.pid, 0)


def _watch(fd: int, pipe: int, saved: list, raw: list) -> None:
    """In the child: wait until the parent is gone,
    then restore the terminal if nobody else has touched it since."""
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGTSTP,
        signal.SIGTTOU,
        signal.SIGTTIN,
    ):
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    terminal = os.dup(fd)
    keep = {terminal, pipe}
    limit = max(keep) + 1
    for other in range(limit):
        if other not in keep:
            with contextlib.suppress(OSError):
                os.close(other)
    os.closerange(limit, 1 << 20)
    while os.read(pipe, 1):
        pass
    # A shell that noticed the death first has its own settings in place by now:
    # those are not ours to overwrite.
    if termios.tcgetattr(terminal)[:4] == raw[:4]:
        termios.tcsetattr(terminal, termios.TCSANOW, saved)


class Modes:
    """The terminal modes that a run switched on (alternate screen, hidden cursor, mouse, ...), so that a
    detach can switch them off."""

    _mode = re.compile(rb"\x1b\[\?([\d;]+)([hl])")

    def __init__(self) -> None:
        self.changed: dict[bytes, bool] = {}

    def see(self, data: bytes) -> None:
        if b"\x1b[?" not in data:
            return
        for numbers, switch in self._mode.findall(data):
            for number in numbers.split(b";"):
                on = switch == b"h"
                if on == (number in (b"25", b"7")):  # the two that are on in a fresh terminal
                    self.changed.pop(number, None)
                else:
                    self.changed[number] = on

    def undo(self) -> bytes:
        """The bytes that switch these modes off."""
        back = b"".join(b"\x1b[?" + number + (b"l" if on else b"h") for number, on in self.changed.items())
        return back + b"\x1b[0m" if back else b""
