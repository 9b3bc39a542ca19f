"""Following a run from the client: its bytes out, our bytes and signals in, until it ends or is left.

One loop for `run`, `attach` and `start --attach`. The main thread writes what the run prints; a second thread reads stdin
and hands on signals. The server may die at any moment: the loop goes on at the byte it had.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from stoker.base.errors import ServerError, StokerError
from stoker.base.state import State
from stoker.cli import output
from stoker.cli.options import exit_code, plane
from stoker.cli.terminal import CTRL_C, CTRL_Z, Terminal

if TYPE_CHECKING:
    from stoker.client import Attached

LAST_CTRL_C_S = 3.0  # so many seconds hold the three Ctrl-C that end a run
GIVE_UP_S = 120.0  # so long the server may be gone before the run is left alone
CHUNK = 65536
HANDED_ON = {signal.SIGINT: "INT", signal.SIGTERM: "TERM", signal.SIGQUIT: "QUIT", signal.SIGUSR1: "USR1", signal.SIGUSR2: "USR2"}


class Left(Exception):
    """The client leaves, the run goes on. `code` is what the client exits with."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Follower:
    """Follows one run. `follow()` gives the exit code; `run` is the newest that is known of it.

    offsets: where to begin in out.log and err.log of the newest attempt. input: hand on keys, stdin and signals.
    """

    def __init__(self, run: dict, *, offsets: tuple[int, int] = (0, 0), take_input: bool = True, quiet_wait: bool = False) -> None:
        self.run = run
        self.attempt = 0  # 0: whichever comes first
        self.out, self.err = offsets
        self.take_input = take_input
        self.terminal = Terminal(0) if os.isatty(0) else None
        self._modes = Modes()
        self._told = "" if not quiet_wait else None
        self._keys = Keys(self)
        self._err_open = True
        self._fresh_line = True
        self._exit: dict | None = None

    # -- the main thread ---------------------------------------------------------------------------------------------

    def follow(self) -> int:
        """The run's exit code, or the code of how the client left. Raises StokerError."""
        if self.terminal and self.run.get("tty") and self.take_input:
            with contextlib.suppress(OSError):
                self.terminal.arm()
        self._keys.start()
        try:
            self._follow_attempts()
        except Left as left:
            self._restore(left=True)
            if left.message:
                output.say(left.message)
            return left.code
        finally:
            self._keys.end()
            self._restore()
        return self._code()

    def _follow_attempts(self) -> None:
        """Attach, again when the server was lost, again for the next attempt, until the run is final."""
        lost_at: float | None = None
        while True:
            try:
                with contextlib.closing(self._attach()) as link:
                    lost_at = None
                    self._keys.use(link)
                    self._listen(link)
                if self._settled():
                    return
            except (ServerError, ConnectionError, EOFError):
                self._keys.check()
                lost_at = lost_at or time.monotonic()
                self._lost(time.monotonic() - lost_at)
            finally:
                self._keys.use(None)

    def _attach(self) -> Attached:
        return plane().attach(self.run["id"], attempt=self.attempt or None, out=self.out, err=self.err, input=self.take_input)

    def _listen(self, link: Attached) -> None:
        """Take what comes until the attempt or the link ends."""
        for kind, payload in link:
            if kind == "o":
                self._write(1, payload)
                self.out += len(payload)
            elif kind == "r":
                self._write(2, payload)
                self.err += len(payload)
            elif kind == "state":
                self._state(payload)
            elif kind == "m":
                self._begin(json.loads(payload))
            elif kind == "x":
                self._exit = json.loads(payload)
                return
        self._keys.check()

    def _state(self, run: dict) -> None:
        """What is said while the run does not print yet."""
        self.run = run
        waits = run.get("waits_for") or ""
        if self._told is not None and waits and waits != self._told and run["state"] == State.PENDING:
            self._told = waits
            output.say(f"{output.shown(run['name'])} waits for {waits} (Ctrl-C cancels it, Ctrl-Z leaves it waiting)")

    def _begin(self, meta: dict) -> None:
        """The stream of an attempt starts."""
        if meta["attempt"] != self.attempt:
            if self.attempt:
                self.out = self.err = 0
            self.attempt = meta["attempt"]
        self._keys.begin(tty=bool(meta.get("tty")))

    def _settled(self) -> bool:
        """After the last frame of an attempt: is that the end of the run? Else the next attempt is followed."""
        self._keys.pause()
        ended, self._exit = self._exit, None
        if ended is None:
            self.run = plane().run(self.run["id"])
            return State(self.run["state"]).final
        again = ended.get("restart")
        while not again:
            self.run = plane().wait(self.run["id"], 20)
            self._keys.check()
            if State(self.run["state"]).final:
                return True
            again = {"attempt": self.run["attempts"]} if self.run["attempts"] > self.attempt else None
        if again.get("attempt", 0) > self.attempt:
            self._own_line()
            output.say(f"attempt {self.attempt} ended ({ended.get('reason')}); attempt {again['attempt']} follows")
            self.attempt, self.out, self.err = again["attempt"], 0, 0
        return False

    def _lost(self, for_s: float) -> None:
        """The server does not answer: wait a little, and leave the run alone if that lasts."""
        if for_s > GIVE_UP_S:
            raise Left(125, f"the server cannot be reached; the run goes on. Come back with: stoker attach {output.type_ref(self.run)}")
        self._keys.check(wait_s=min(2.0, 0.05 + for_s / 2))

    def _write(self, fd: int, data: bytes) -> None:
        if fd == 2 and not self._err_open:
            return
        self._modes.see(data)
        try:
            write_all(fd, data)
        except OSError as e:
            if fd == 2:
                self._err_open = False
                return
            output.close_stdout()
            if isinstance(e, BrokenPipeError):
                raise Left(output.SIGPIPE_CODE, "nobody reads the output any more; the run goes on. "
                           f"Come back with: stoker attach {output.type_ref(self.run)}") from e
            raise Left(125, f"the output cannot be written ({e.strerror}); the run goes on. "
                       f"Come back with: stoker attach {output.type_ref(self.run)}") from e
        self._fresh_line = data.endswith(b"\n")

    def _own_line(self) -> None:
        """What Stoker says begins on a line of its own."""
        if not self._fresh_line and os.isatty(2):
            with contextlib.suppress(OSError):
                os.write(2, b"\n")
        self._fresh_line = True

    def _restore(self, left: bool = False) -> None:
        if left and self._keys.raw:
            with contextlib.suppress(OSError):
                write_all(1, self._modes.undo())
        if self.terminal:
            self.terminal.restore()
        self._own_line()

    def _code(self) -> int:
        """Of a final run; and one line when it did not end well."""
        run = self.run
        if run["state"] != State.DONE or run.get("exit_code"):
            following = f" Next: {run['next']}" if run.get("next") else ""
            output.say(f"{run.get('sentence') or run['state']}{following}")
        if run.get("exit_code") is None and run.get("reason") == "start_failed":
            return 125
        return exit_code(run)


class Keys:
    """The second thread: stdin, window size and signals go to the run. Everything it decides, the main thread learns by `check()`."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.raw = False  # the local terminal hands every key on
        self._link: Attached | None = None
        self._tty = False
        self._open = False  # stdin is read
        self._ended = False  # stdin is at its end
        self._left: Left | None = None
        self._ctrl_c: list[float] = []
        self._pipe = os.pipe()
        self._old_handlers: dict[int, object] = {}
        self._thread = threading.Thread(target=self._work, name="stoker-keys", daemon=True)
        self._stop = False
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def start(self) -> None:
        """From the main thread: catch signals, begin."""
        caught = [*HANDED_ON, signal.SIGHUP, signal.SIGTSTP, signal.SIGWINCH, signal.SIGCONT]
        for number in caught:
            if signal.getsignal(number) != signal.SIG_IGN or number in (signal.SIGWINCH, signal.SIGCONT):
                self._old_handlers[number] = signal.signal(number, lambda n, frame: self._wake(n))
        self._old_handlers[signal.SIGTTIN] = signal.signal(signal.SIGTTIN, signal.SIG_IGN)
        self._thread.start()

    def end(self) -> None:
        self._stop = True
        self._wake(0)
        self._thread.join(1.0)
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._old_handlers.clear()

    def use(self, link: Attached | None) -> None:
        """What is typed goes there from now on; None: it is kept back."""
        with self._lock:
            self._link = link
            self._open = False
            self._changed.notify_all()
        self._wake(0)

    def begin(self, tty: bool) -> None:
        """The attempt lives: read stdin."""
        with self._lock:
            self._tty, self._open = tty, self.follower.take_input
            self._changed.notify_all()
        self._wake(signal.SIGWINCH)

    def pause(self) -> None:
        """The attempt has ended: stdin is left alone."""
        with self._lock:
            self._open = False

    def check(self, wait_s: float = 0) -> None:
        """Raise Left if the user has left."""
        with self._lock:
            if wait_s and self._left is None:
                self._changed.wait_for(lambda: self._left is not None, wait_s)
            if self._left is not None:
                raise self._left

    # -- the second thread -------------------------------------------------------------------------------------------

    def _wake(self, number: int) -> None:
        with contextlib.suppress(OSError):
            os.write(self._pipe[1], bytes([number]))

    def _work(self) -> None:
        while not self._stop:
            self._go_raw()
            reading = self._open and not self._ended and self._may_read()
            again_s = 0.5 if self._open and not self._ended and not reading else None
            ready, _, _ = select.select([self._pipe[0], *([0] if reading else [])], [], [], again_s)
            if self._pipe[0] in ready:
                for number in os.read(self._pipe[0], 256):
                    if number:
                        self._signal(signal.Signals(number))
            elif 0 in ready:
                self._read()

    def _may_read(self) -> bool:
        terminal = self.follower.terminal
        return terminal is None or terminal.foreground()

    def _go_raw(self) -> None:
        terminal = self.follower.terminal
        if self._open and self._tty and terminal and not self.raw:
            self.raw = terminal.raw()
            if self.raw:
                self._send_size()

    def _read(self) -> None:
        try:
            data = os.read(0, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._typed(data)
        elif self.raw:
            self._leave(129, "")
        else:
            self._ended = True
            self._send("e", b"")

    def _typed(self, data: bytes) -> None:
        if not self.raw:
            self._send("i", data)
            return
        before, leave, _ = data.partition(bytes([CTRL_Z]))
        for _ in range(before.count(CTRL_C)):
            if self._third_ctrl_c():
                self._send("k", b"")
        if before:
            self._send("i", before)
        if leave:
            self._detach()

    def _signal(self, number: signal.Signals) -> None:
        if number == signal.SIGWINCH:
            self._send_size()
        elif number == signal.SIGCONT:
            self.raw = False  # whoever stopped us may have changed the terminal
        elif number == signal.SIGTSTP:
            self._detach()
        elif number == signal.SIGHUP:
            self._leave(129, "")
        elif not self._tty and not self._open and not self._started() and number in (signal.SIGINT, signal.SIGTERM):
            self._cancel()
        elif number == signal.SIGINT and self._third_ctrl_c():
            self._send("k", b"")
        else:
            self._send("s", HANDED_ON[number].encode())

    def _started(self) -> bool:
        return self.follower.attempt > 0

    def _third_ctrl_c(self) -> bool:
        now = time.monotonic()
        self._ctrl_c = [*[t for t in self._ctrl_c if now - t < LAST_CTRL_C_S], now]
        if len(self._ctrl_c) < 3:
            return False
        self._ctrl_c.clear()
        output.say("ending it: TERM now, KILL after its grace\r")
        return True

    def _send_size(self) -> None:
        terminal = self.follower.terminal
        if self._tty and terminal:
            rows, columns = terminal.size()
            self._send("w", json.dumps({"rows": rows, "cols": columns}).encode())

    def _send(self, kind: str, payload: bytes) -> None:
        """To the run; waits while the server is away, so that nothing that was typed is lost."""
        while not self._stop and self._left is None:
            with self._lock:
                link = self._link
                if link is None:
                    self._changed.wait(1.0)
                    continue
            try:
                link.send(kind, payload)
                return
            except (StokerError, OSError, EOFError):
                with self._lock:
                    if self._link is link:
                        self._link = None

    def _cancel(self) -> None:
        """Ctrl-C while the run waits for its turn, or for its next attempt."""
        try:
            plane().stop(self.follower.run["id"])
        except StokerError as e:
            output.say(e.message)

    def _detach(self) -> None:
        ref = output.type_ref(self.follower.run)
        self._leave(0, f"left; the run goes on. Come back with: stoker attach {ref}")

    def _leave(self, code: int, message: str) -> None:
        with self._lock:
            self._left = Left(code, message)
            link = self._link
            self._changed.notify_all()
        if link is not None:
            with contextlib.suppress(StokerError, OSError):
                link.close()


class Modes:
    """The terminal modes a run switched on (other screen, hidden cursor, mouse, ...), so that leaving it can undo them."""

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
        """The bytes that put the terminal back."""
        back = b"".join(b"\x1b[?" + number + (b"l" if on else b"h") for number, on in self.changed.items())
        return back + b"\x1b[0m" if back else b""


def write_all(fd: int, data: bytes) -> None:
    """Every byte, also into a non-blocking file. Raises OSError."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view):]
        except BlockingIOError:
            select.select([], [fd], [], 1.0)


def stderr_is_stdout() -> bool:
    """True if stdout and stderr are one file, so that one log keeps their order."""
    try:
        one, two = os.fstat(1), os.fstat(2)
    except OSError:
        return False
    return (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino)


def all_terminals() -> bool:
    """True if stdin, stdout and stderr are terminals: only then the run gets one."""
    return all(output.is_terminal(s) for s in (sys.stdin, sys.stdout, sys.stderr))
