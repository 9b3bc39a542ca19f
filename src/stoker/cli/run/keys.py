"""What goes from here to a run: stdin, the window's size, signals. And how one leaves: Ctrl-Z, a hangup.

Two threads, so that a run that takes no input can never keep Ctrl-C back:
one reads and decides, the other sends.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import stat
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from stoker.base.errors import StateError, StokerError
from stoker.cli import output
from stoker.cli.options import plane
from stoker.cli.run.terminal import CTRL_C, CTRL_Z, Terminal

if TYPE_CHECKING:
    from stoker.cli.run.local_view import Beside
    from stoker.client.attach import Attached

LAST_CTRL_C_S = 3.0  # so many seconds hold the three Ctrl-C that end a run
STUCK_S = 1.0  # a signal that waits longer than this behind input is given to the server instead
CHUNK = 65536
HELD_MAX = 1 << 20  # bytes of input that wait to be sent; then stdin is not read
JUST_NOW_S = 1.0
ENDING = (b"INT", b"TERM", b"QUIT")
HANDED_ON = {
    signal.SIGINT: "INT",
    signal.SIGTERM: "TERM",
    signal.SIGQUIT: "QUIT",
    signal.SIGUSR1: "USR1",
    signal.SIGUSR2: "USR2",
}


def leave_on_signals() -> None:
    """For a verb that started its own runs: if a signal or a hangup ends the verb, it also ends its runs,
    as after Ctrl-C."""
    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


class Left(Exception):
    """The client detaches, and the run continues. `code`: exit code of the client."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Keys:
    """Passes stdin and signals on to the run `run_id`. The main thread calls `check()` to learn about a
    detach.
    how_to_come_back: printed at a detach. take_input: False only watches; then Ctrl-C ends the watching.
    when_awaited: read stdin only after a run on this machine was seen to wait for input."""

    def __init__(
        self,
        run_id: str,
        how_to_come_back: str,
        terminal: Terminal | None,
        *,
        take_input: bool,
        visiting: bool,
        when_awaited: bool = False,
    ) -> None:
        self.raw = False  # the local terminal hands every key on
        self.interrupted_at = 0.0  # when Ctrl-C came last, as a key or as a signal
        self._stopping = False  # it was asked to end before it had begun
        self.typed_interrupt = False  # as a key: nobody but the run has got a signal
        self._run_id = run_id
        self._come_back = how_to_come_back
        self._terminal = terminal
        self._take_input = take_input
        self._visiting = visiting and terminal is None  # the end of our stdin is not the end of the run's
        self._when_awaited = when_awaited
        self._beside: Beside | None = None
        self._attempt = 0  # to which what is typed goes
        self._input_sent_at = -1e9
        self._link: Attached | None = None
        self._live = False  # an attempt runs: what is typed is for it
        self._tty = False
        self._ended = False  # stdin is at its end
        self.taken = 0  # bytes that were read from stdin
        self._file_at: int | None = None  # where stdin began, if it is a file
        self._left: Left | None = None
        self._stop = False
        self._ctrl_c: list[float] = []
        # when, kind, payload: signals, sizes; sent before input
        self._urgent: deque[tuple[float, str, bytes]] = deque()
        self._input: deque[tuple[str, bytes]] = deque()
        self._held = 0
        self._changed = threading.Condition()
        self._pipe = os.pipe()
        self._handlers: dict[int, Any] = {}  # as signal.signal returned them
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._decide, self._send)]

    # -- for the main thread
    # -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to catch signals. Signals that were ignored at the start stay ignored (nohup)."""
        for number in (*HANDED_ON, signal.SIGHUP, signal.SIGTSTP, signal.SIGWINCH, signal.SIGCONT):
            if signal.getsignal(number) != signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, lambda n, frame: self._wake(n))
        if self._take_input and stat.S_ISREG(os.fstat(0).st_mode):
            self._file_at = os.lseek(0, 0, os.SEEK_CUR)
        # reading in the background shall not stop us
        self._handlers[signal.SIGTTIN] = signal.signal(signal.SIGTTIN, signal.SIG_IGN)
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Stop handling signals and keys."""
        with self._changed:
            self._stop = True
            self._changed.notify_all()
        self._wake(0)
        for thread in self._threads:
            thread.join(1.0)
        for number, handler in self._handlers.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._handlers.clear()

    def give_back(self, read: int) -> bool:
        """After `end`, for a run that has read so many bytes of input: leave the rest of a file to the next
        reader of stdin, as a plain command would; True where this was possible."""
        if self._file_at is None:
            return False
        os.lseek(0, self._file_at + read, os.SEEK_SET)
        return True

    def use(self, link: Attached | None) -> None:
        """Send input to this connection from now on; None: hold the input back."""
        with self._changed:
            self._link = link
            self._changed.notify_all()

    def begin(self, attempt: int, tty: bool, beside: Beside | None = None) -> None:
        """An attempt has begun: input goes to it. beside: tells how its terminal handles keys, if it is on
        this machine."""
        with self._changed:
            again = attempt == self._attempt
            self._live, self._tty, self._attempt, self._beside = True, tty, attempt, beside
            self._changed.notify_all()
        if self._ended and not again:
            self._end_input()
        self._wake(signal.SIGWINCH)

    def sent_just_now(self) -> bool:
        """True if input was sent so recently that it may not have arrived."""
        return time.monotonic() - self._input_sent_at < JUST_NOW_S

    def pause(self) -> None:
        """The attempt has ended: read no input; Ctrl-C ends the wait for the next attempt."""
        with self._changed:
            self._live = False
            self._urgent.clear()
            self._input.clear()
            self._held = 0
        if self.raw and self._terminal:
            self.raw = False
            self._terminal.cooked()

    def check(self, wait_s: float = 0) -> None:
        """Raise Left if the user has detached; waits for this at most this long."""
        with self._changed:
            if wait_s:
                self._changed.wait_for(lambda: self._left is not None, wait_s)
            if self._left is not None:
                raise self._left

    # -- the thread that decides
    # ---------------------------------------------------------------------------------------

    def _wake(self, number: int) -> None:
        with contextlib.suppress(OSError):
            os.write(self._pipe[1], bytes([number]))

    def _decide(self) -> None:
        while not self._stop:
            wanted = self._live and self._take_input and not self._ended
            if wanted and self._tty and self._terminal and not self.raw and self._terminal.raw():
                self.raw = True
                self._size()
            reading = (
                wanted
                and self._held < HELD_MAX
                and (self._terminal is None or self._terminal.foreground())
                and self._awaited()
            )
            again_s = 0.5 if self._urgent or (wanted and not reading) else None
            ready, _, _ = select.select([self._pipe[0], *([0] if reading else [])], [], [], again_s)
            if self._pipe[0] in ready:
                for number in os.read(self._pipe[0], 256):
                    if number:
                        self._signal(signal.Signals(number))
            elif 0 in ready and self._live:
                self._read()
            self._unstick()

    def _awaited(self) -> bool:
        """Whether to read stdin now. What was read once is the run's, so the rest is too."""
        if self._when_awaited and self._beside is not None:
            self._when_awaited = not self._beside.waits_for_input()
            return not self._when_awaited
        return True

    def _read(self) -> None:
        try:
            data = os.read(0, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.taken += len(data)
            self._typed(data)
        elif self.raw:
            self._leave(129)  # the terminal is gone
        else:
            self._ended = True
            self._end_input()

    def _end_input(self) -> None:
        if not self._visiting:
            self._put("e", b"")

    def _typed(self, data: bytes) -> None:
        before, leave = data, False
        if self.raw and CTRL_Z in data and self._is_ours(CTRL_Z):
            before, leave = data[:data.index(CTRL_Z)], True
        if self.raw and CTRL_C in before and self._is_ours(CTRL_C):
            for _ in range(before.count(CTRL_C)):
                self.typed_interrupt = True
                self._count_ctrl_c()
        if before:
            self._put("i", before)
        if leave:
            self._leave(0, f"Detached; still running. To return to the run: {self._come_back}")

    def _is_ours(self, key: int) -> bool:
        """Ctrl-Z and Ctrl-C are plain keys for a program that has told its terminal so, as editors do."""
        return self._beside is None or self._beside.makes_signal(key) is not False

    def _signal(self, number: signal.Signals) -> None:
        if number == signal.SIGWINCH:
            self._size()
        elif number == signal.SIGCONT:
            self.raw = False  # whoever stopped us may have changed the terminal
        elif number == signal.SIGTSTP:
            self._leave(0, f"Detached; still running. To return to the run: {self._come_back}")
        elif number == signal.SIGHUP:
            self._leave(129)
        elif not self._take_input:
            self._leave(128 + number)
        elif not self._live and number in (signal.SIGINT, signal.SIGTERM):
            if self._stopping:  # asked before: its machine may not answer for long
                self._leave(128 + number, "Stoker cancels the run when the machine answers.")
            self.interrupted_at = time.monotonic() if number == signal.SIGINT else self.interrupted_at
            self._stopping = True
            self._stop_run()
        elif number != signal.SIGINT or not self._count_ctrl_c():
            self._put("s", HANDED_ON[number].encode())

    def _count_ctrl_c(self) -> bool:
        """The third one within a few seconds starts the end of the run. True if this was it."""
        now = self.interrupted_at = time.monotonic()
        self._ctrl_c = [*[t for t in self._ctrl_c if now - t < LAST_CTRL_C_S], now]
        if len(self._ctrl_c) < 3:
            return False
        self._ctrl_c.clear()
        output.say("Ending the run: SIGTERM now, SIGKILL after the grace period.")
        self._put("k", b"")
        return True

    def _size(self) -> None:
        if self._live and self._tty and self._terminal and self._take_input:
            rows, columns = self._terminal.size()
            self._put("w", json.dumps({"rows": rows, "cols": columns}).encode())

    def _put(self, kind: str, payload: bytes) -> None:
        with self._changed:
            if kind in "ie":
                self._input.append((kind, payload))
                self._held += len(payload)
            else:
                self._urgent.append((time.monotonic(), kind, payload))
            self._changed.notify_all()

    def _unstick(self) -> None:
        """A signal must not wait behind input that the run does not take."""
        with self._changed:
            stuck = (
                self._link is not None
                and self._live
                and bool(self._urgent)
                and time.monotonic() - self._urgent[0][0] > STUCK_S
            )
            ends = stuck and any(kind == "k" or payload in ENDING for _, kind, payload in self._urgent)
            if stuck:
                self._urgent.clear()
        if ends:
            self._stop_run()

    def _stop_run(self) -> None:
        """By the server, in a thread of its own, since it may take its time."""
        def ask() -> None:
            try:
                plane().stop(self._run_id)
            except StateError:
                pass  # it has just ended
            except StokerError as e:
                output.say(e.message)

        threading.Thread(target=ask, name="stoker-stop", daemon=True).start()

    def _leave(self, code: int, message: str = "") -> None:
        with self._changed:
            self._left = Left(code, message)
            link = self._link
            self._changed.notify_all()
        if link is not None:
            with contextlib.suppress(StokerError, OSError):
                link.close()

    # -- the thread that sends
    # -----------------------------------------------------------------------------------------

    def _send(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: (
                        self._stop
                        or (self._link is not None and self._live and (self._urgent or self._input))
                    )
                )
                if self._stop:
                    return
                link = self._link
                assert link is not None  # waited for above
                kind, payload = self._urgent[0][1:] if self._urgent else self._input[0]
            try:
                link.send(kind, payload)
            except (StokerError, OSError):
                with self._changed:
                    if self._link is link:
                        self._link = None  # the main thread finds out too, and brings a new one
                continue
            self._sent(kind, payload)

    def _sent(self, kind: str, payload: bytes) -> None:
        with self._changed:
            if kind in "ie":
                self._input_sent_at = time.monotonic()
                if self._input and self._input[0] == (kind, payload):
                    self._input.popleft()
                    self._held -= len(payload)
            elif self._urgent and self._urgent[0][1:] == (kind, payload):
                self._urgent.popleft()
        if kind == "i":
            self._wake(0)  # there is room for more
