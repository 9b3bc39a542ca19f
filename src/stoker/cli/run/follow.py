"""Following a run from the client: its bytes out, our bytes and signals in, until it ends or is left.

One loop for `run`, `attach` and `start --attach`. The server may die at any moment:
the loop goes on at the byte it had.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import termios
import time
from typing import TYPE_CHECKING, Any

from stoker.base.errors import EXIT_OWN_FAILURE, ServerError, StokerError, TargetError
from stoker.base.rundir import ATTEMPTS, STEPS
from stoker.base.state import State
from stoker.base.units import format_size
from stoker.cli import output
from stoker.cli.options import Patience, exit_code, plane
from stoker.cli.run import arrivals, piped
from stoker.cli.run.keys import Keys, Left
from stoker.cli.run.local_view import Beside
from stoker.cli.run.terminal import Modes, Terminal, die_of_interrupt

if TYPE_CHECKING:
    from stoker.client.attach import Attached

INTERRUPTED = 128 + signal.SIGINT
LOOK_S = 0.5  # so often it is looked whether only processes that were left behind live
BACK_PAUSE_MAX_S = 60.0  # between two words of how far an attempt is on its way back
REST_TRIES = 5
SAME_KEY_S = 0.5  # between two effects of one Ctrl-C, on a busy machine
LEFT_NAMED = 5
BEFORE_RUNNING = (State.STAGING, State.STARTING, State.STOPPING)
GIVE_UP_S = 120.0  # so long the server may be gone before the run is left alone


class Follower:
    """Follows one run. `follow()` returns the exit code; `run` is the newest known run object.
    attempt: the first attempt to follow; 0: the newest. offsets: start positions in its out.log and
    err.log. take_input: pass on keys, stdin and signals. visiting: the end of stdin does not end the run's
    input."""

    def __init__(
        self,
        run: dict,
        *,
        attempt: int = 0,
        offsets: tuple[int, int] = (0, 0),
        take_input: bool = True,
        visiting: bool = False,
    ) -> None:
        self.run = run
        self.attempt = attempt
        self.out, self.err = offsets
        self.take_input = take_input
        self.terminal = Terminal(0) if os.isatty(0) else None
        # begin in the middle of a line
        self._cut = {fd for fd, offset in zip((1, 2), offsets, strict=True) if offset}
        self._modes = Modes()
        self._told = ""  # what it waits for, as was said last
        self._come_back = f"stoker attach {output.type_ref(run)}"
        self._keys = Keys(
            run["id"],
            self._come_back,
            self.terminal,
            take_input=take_input,
            visiting=visiting,
            when_awaited=not visiting and piped.list_of_a_loop(run["command"]),
        )
        self.nothing_trained = False  # it ended well, and was a training without a step
        self._beside: Beside | None = None
        # when it is told next how far the attempt is on its way back; 0: it has printed by now
        self._back_at = 0.0
        self._back_pause_s = output.SILENT_S
        self._looked_at = 0.0  # when it was looked whether only leftovers live
        self._err_open = True
        self._fresh_line = True
        self._since = time.monotonic()  # when it was begun to wait for the attempt
        self._begun = False  # an attempt's stream has begun, and its exit was not seen yet
        self._rest = 0  # how often it was tried to fetch the rest of the log of a run that has ended
        self._exit: dict | None = None
        self._ended = 0  # attempts that were followed to their end
        self._visiting = visiting
        self._input_read: int | None = None  # bytes of input that the run has read; None: not known
        self._patience = Patience(GIVE_UP_S, times=200)

    def follow(self) -> int:
        """Return the run's exit code, or the exit code for the way in which the client detached. Raises
        StokerError."""
        if self.terminal and self.run.get("tty") and self.take_input:
            with contextlib.suppress(OSError, termios.error):
                self.terminal.arm()
        self._keys.start()
        try:
            self._follow_attempts()
        except Left as left:
            self._restore(left=True)
            if left.message:
                self._say(left.message)
            return left.code
        finally:
            self._keys.end()
            self._restore()
        self._give_input_back()
        return self._code()

    def die_with_it(self) -> None:
        """End by SIGINT if Ctrl-C was pressed here and killed the run."""
        if (
            self._keys.interrupted_at
            and self.run["state"] == State.STOPPED
            and self._code_of_run() == INTERRUPTED
        ):
            die_of_interrupt(everybody=self._keys.typed_interrupt)

    def _follow_attempts(self) -> None:
        """Attach, again when the server was lost, again for the next attempt, until the run is final."""
        while True:
            try:
                with contextlib.closing(self._attach()) as link:
                    self._keys.use(link)
                    self._listen(link)
                if self._settled():
                    return
            except (StokerError, OSError) as e:
                self._keys.check()
                if self._rest and State(self.run["state"]).final and not isinstance(e, ServerError):
                    return  # the log cannot be had any more, but how it ended is known
                if not isinstance(e, (ServerError, TargetError, OSError)):
                    raise
                if isinstance(e, TargetError) and not e.retry:
                    raise
                self._warn_about_input()
                self._lost()
            finally:
                self._keys.use(None)

    def _attach(self) -> Attached:
        return plane().attach(
            self.run["id"], attempt=self.attempt or None, out=self.out, err=self.err, input=self.take_input
        )

    def _listen(self, link: Attached) -> None:
        """Take what comes until the attempt or the link ends."""
        payload: Any  # by its kind, as `recv` describes
        while True:
            kind, payload = link.recv(None if self._begun and not self._beside else LOOK_S) or ("", b"")
            self._tell_of_leftovers()
            self._tell_of_the_way_back()
            self._tell_what_it_waits_for()
            if kind == "closed":
                break
            if kind not in ("state", ""):
                self._patience.heard()
            if kind in ("o", "r"):
                self._back_at = 0.0
            if kind == "o":
                self._write(1, self._from_line_start(1, payload))
                self.out += len(payload)
            elif kind == "r":
                self._write(2, self._from_line_start(2, payload))
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
        if waits and waits != self._told and run["state"] == State.PENDING:
            self._told = waits
            self._say(f"{output.shown(run['name'])} waits for {waits} (Ctrl-C: cancel, Ctrl-Z: detach)")

    def _begin(self, meta: dict) -> None:
        """The stream of an attempt starts."""
        if meta["attempt"] != self.attempt:
            if self.attempt:
                self.out = self.err = 0
            self.attempt = meta["attempt"]
        self._begun = True
        self._beside = Beside.of(self.run, self.attempt)
        self._back_at, self._back_pause_s = time.monotonic() + output.SILENT_S, output.SILENT_S
        self._keys.begin(self.attempt, tty=bool(meta.get("tty")), beside=self._beside)

    def _tell_what_it_waits_for(self) -> None:
        """After three seconds without a beginning: why, and how to leave; again where the reason changes.
        A run that is running, or has ended, sends its output in a moment: of that nothing is told."""
        if (
            self._begun
            or time.monotonic() - self._since < output.SILENT_S
            or self.run["state"] not in BEFORE_RUNNING
        ):
            return
        told = str(self.run.get("sentence") or self.run["state"])
        if told != self._told:
            self._told = told
            leave = (
                " (Ctrl-C: cancel the run; second Ctrl-C: do not wait for the machine; Ctrl-Z: detach)"
                if output.is_terminal(sys.stderr)
                else f" (to cancel: stoker stop {output.type_ref(self.run)})"
            )
            self._say(f"{output.shown(self.run['name'])}: {output.shown(told)}{leave}")

    def _tell_of_the_way_back(self) -> None:
        """How far an attempt is that goes to an image: it prints nothing until then.
        Told after 3 s, later less often."""
        now = time.monotonic()
        if self.attempt < 2 or self._beside is None or not 0 < self._back_at <= now:
            return
        told = self._beside.resuming()
        self._back_at = now + (self._back_pause_s if told else LOOK_S)
        if told:
            self._back_pause_s = min(BACK_PAUSE_MAX_S, 2 * self._back_pause_s)
            self._say(f"{output.shown(self.run['name'])}: {told}")

    def _tell_of_leftovers(self) -> None:
        """Why the prompt does not come back although the command has ended; once, and only to a person."""
        now = time.monotonic()
        if self._beside is None or now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        left = self._beside.left_behind()
        if left is None:
            return
        self._beside = None
        if left and output.is_terminal(sys.stderr):
            names = output.shown(", ".join(left[:LEFT_NAMED]) + (", ..." if len(left) > LEFT_NAMED else ""))
            count = "a process" if len(left) == 1 else f"{len(left)} processes"
            self._say(f"The command has finished. Stoker ends {count} that the command left running: {names}")

    def _settled(self) -> bool:
        """After the last frame of an attempt:
        is that the end of the run? Else the next attempt is followed."""
        ended, self._exit = self._exit, None
        if ended is None:
            self.run = plane().run(self.run["id"])
            if not State(self.run["state"]).final:
                raise ServerError("The connection to the run was lost.")
            if self._begun and self._rest < REST_TRIES:
                # it ended while nobody was connected: what it said until then is still to come
                self._rest += 1
                return False
            return True
        self._begun, self._rest, self._since = False, 0, time.monotonic()
        self._keys.pause()
        self._ended += 1
        self._input_read = ended.get("input_read")
        again = ended.get("restart")
        while not again:
            self.run = plane().wait(self.run["id"], 20)
            self._keys.check()
            if State(self.run["state"]).final:
                return True
            again = {"attempt": self.run["attempts"]} if self.run["attempts"] > self.attempt else None
        if again.get("attempt", 0) > self.attempt:
            self._say(
                f"attempt {self.attempt} ended ({ended.get('reason')}); starting attempt {again['attempt']}"
            )
            self.attempt, self.out, self.err = again["attempt"], 0, 0
            self._cut.clear()
        return False

    def _give_input_back(self) -> None:
        """In a shell loop over a list, stdin is the list: what the run did not read is for the next
        command. A visitor is not the only one who types, and an attempt loses what the one before it did
        not read."""
        read, taken = self._input_read, self._keys.taken
        alone = self.terminal is None and not self._visiting and self._ended == 1
        if not alone or read is None or taken <= read or self._keys.give_back(read):
            return
        if read == 0:
            self._say(
                f"Stoker read stdin ({format_size(taken)}), but the run did not read this input. In a "
                "shell loop, add `< /dev/null` to the command."
            )

    def _lost(self) -> None:
        """The server does not answer: wait a little, and leave the run alone if that lasts."""
        pause_s = self._patience.left_s()
        if not pause_s:
            raise Left(
                EXIT_OWN_FAILURE,
                f"The server cannot be reached; the run continues. To return to the run: {self._come_back}",
            )
        self._keys.check(wait_s=pause_s)

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
                raise Left(
                    output.SIGPIPE_CODE,
                    f"The program that reads the output has ended; {self._how_it_goes_on()}",
                ) from e
            raise Left(EXIT_OWN_FAILURE, f"The output cannot be written ({e.strerror}); the run continues. "
                                         f"To return to the run: {self._come_back}") from e
        self._fresh_line = data.endswith(b"\n")

    def _how_it_goes_on(self) -> str:
        """After `| tee`, which Ctrl-C ended before it ended the run. The end of `tee` may be seen first."""
        deadline = time.monotonic() + SAME_KEY_S
        while not self._keys.interrupted_at and time.monotonic() < deadline:
            time.sleep(0.02)
        if self._keys.interrupted_at:
            return (
                f"Ctrl-C was sent to the run. See how the run ended: stoker show {output.type_ref(self.run)}"
            )
        return f"the run continues. To return to the run: {self._come_back}"

    def _from_line_start(self, fd: int, data: bytes) -> bytes:
        """Who comes in the middle of a log sees whole lines, where there are any."""
        if fd not in self._cut:
            return data
        self._cut.remove(fd)
        return data[data.find(b"\n") + 1:]

    def _warn_about_input(self) -> None:
        """Input has no offset as output has: what was on its way when the server died may be gone."""
        if self._keys.sent_just_now():
            self._say("The server ended while input was being sent; part of the input may be lost.")

    def _say(self, text: str) -> None:
        """What Stoker says begins on a line of its own."""
        if not self._fresh_line and os.isatty(2):
            with contextlib.suppress(OSError):
                os.write(2, b"\n")
        self._fresh_line = True
        output.say(text)

    def _restore(self, left: bool = False) -> None:
        if left and self._keys.raw and os.isatty(1):
            with contextlib.suppress(OSError):
                write_all(1, self._modes.undo())
        if self.terminal:
            self.terminal.restore()

    def _code(self) -> int:
        """Of a final run; and one line when it did not end well."""
        run = self.run
        if run["state"] != State.DONE or run.get("exit_code"):
            following = f" Next: {run['next']}" if run.get("next") else ""
            self._say(f"{run.get('sentence') or run['state']}{following}")
        elif _made_no_step(run):
            with contextlib.suppress(StokerError, OSError):
                told = plane().show(run["id"])
                self.nothing_trained = bool(told.get("trained_nothing"))
                if self.nothing_trained:
                    self._say(output.shown(told["sentence"]))
        self.run = arrivals.awaited(run)
        return self._code_of_run()

    def _code_of_run(self) -> int:
        if self.run.get("exit_code") is None:
            return {"start_failed": EXIT_OWN_FAILURE, "stopped_by_user": INTERRUPTED}.get(
                self.run.get("reason") or "", exit_code(self.run)
            )
        return exit_code(self.run)


def _made_no_step(run: dict) -> bool:
    """Whether torch was imported in it and no step was seen:
    a look at one file, so that other runs wait for nothing at their end."""
    try:
        with open(
            os.path.join(run.get("folder") or "", ATTEMPTS, str(run.get("attempts") or 1), STEPS), "rb"
        ) as f:
            return b'"first":true' not in f.read(4096)
    except OSError:
        return False


def write_all(fd: int, data: bytes) -> None:
    """Write every byte, also to a non-blocking file. Raises OSError."""
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
    """True if stdin, stdout and stderr are terminals; only then the run gets a terminal."""
    return all(output.is_terminal(s) for s in (sys.stdin, sys.stdout, sys.stderr))
