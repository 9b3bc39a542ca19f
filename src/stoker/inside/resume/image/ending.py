"""How a life that is recorded ends: by itself, by os._exit, or by a SIGTERM that the script leaves to the
system's default. After that signal one more image is taken, and the script goes on for the few events that
let the next life check it; then the signal has its way.
A stop by Stoker asks for the same by a file, before its first signal, and waits for the answer.
"""

from __future__ import annotations

import _thread
import atexit
import os
import signal
import sys
import time

from ..core import outcome, pace, phases, words
from . import images

_monotonic = getattr(time.monotonic, "__wrapped__", time.monotonic)  # the real one
GRACE_S = 3.0
EVENTS = 6  # events behind the image that are worth waiting for
# in the attempt's folder of hooks: the caretaker asks for an image, it is on the disk
ASK, DONE = "image.ask", "image.done"
asked_at = 0.0
_answers = False  # the caretaker asked, by its file: it sends the signal itself
_look_at = 0.0
# as they are before unsupported.py stands around them
_set_signal, _get_signal = signal.signal, signal.getsignal
_start_thread = _thread.start_new_thread  # as it is before unsupported.py looks at who starts threads
on_script_error: list = []  # called with the class and the error that nobody caught: an audit ends there
_interrupted = False
_pid = 0


def install() -> None:
    """Be told of every way in which this process ends."""
    global _pid
    _pid = os.getpid()
    atexit.register(_at_exit)
    _wrap_exit()
    _wrap_excepthook()
    os.register_at_fork(after_in_child=_in_child)


def listen() -> None:
    """From the first shielded event on: whoever asks this process to end gives it time for an image.
    Not if the script listens itself."""
    if _get_signal(signal.SIGTERM) == signal.SIG_DFL:
        _set_signal(signal.SIGTERM, asked)
    if phases.phase == phases.GHOST and _get_signal(signal.SIGINT) is signal.default_int_handler:
        _set_signal(signal.SIGINT, interrupted_as_ghost)


def end_of_ghost() -> None:
    """Ctrl-C is the script's own again."""
    if _get_signal(signal.SIGINT) is interrupted_as_ghost:
        _set_signal(signal.SIGINT, signal.default_int_handler)


def look() -> None:
    """Now and then, while recording: does the caretaker ask for an image,
    since it is about to end this run?"""
    global asked_at, _answers, _look_at
    now = _monotonic()
    if now < _look_at or asked_at:
        return
    _look_at = now + pace.LOOK_S
    before, phases.depth = phases.depth, 1
    try:
        os.unlink(os.path.join(os.environ.get("STOKER_HOOKS", ""), ASK))
    except OSError:
        pace.looked()
        return
    finally:
        phases.depth = before
    asked_at, _answers = now, True
    pace.wish()


def after_event() -> None:
    """While the end is asked for: is there enough on record?"""
    enough = not pace.wished and phases.log.n - images.last_event >= EVENTS
    if _answers and enough:
        _answer()
    elif not _answers and (enough or _monotonic() - asked_at > GRACE_S):
        _end()


def _answer() -> None:
    """The image and what checks it are on the disk."""
    global asked_at, _answers
    asked_at, _answers = 0.0, False
    phases.depth = 1
    try:
        images.wait()
        phases.log.flush(sync=True)
        os.close(
            os.open(
                os.path.join(os.environ["STOKER_HOOKS"], DONE),
                os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o600,
            )
        )
    except Exception as e:
        outcome.say(f"the requested image could not be taken: {type(e).__name__}: {e}")
    finally:
        phases.depth = 0


def asked(number: int, frame: object) -> None:
    """SIGTERM while a run is recorded: an image first."""
    global asked_at
    global _answers
    if os.getpid() != _pid or phases.phase != phases.RECORD or (asked_at and not _answers):
        _end()
        return
    asked_at, _answers = _monotonic(), False
    pace.wish()
    _deadline()


def _deadline() -> None:
    """Even if no event comes any more the process ends: a thread that waits and asks once more."""
    wait = getattr(time.sleep, "__wrapped__", time.sleep)

    def run() -> None:
        wait(GRACE_S)
        os.kill(_pid, signal.SIGTERM)
    _start_thread(run, ())


def _end() -> None:
    """The default action of SIGTERM."""
    if os.getpid() == _pid and phases.phase == phases.RECORD:
        phases.depth = 1
        try:
            images.wait(2.0)
            phases.log.flush(sync=True)
        except Exception as e:
            outcome.say(f"an error while the script ended: {type(e).__name__}: {e}")
    _set_signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def _in_child() -> None:
    if _get_signal(signal.SIGTERM) is asked:
        _set_signal(signal.SIGTERM, signal.SIG_DFL)


def interrupted_as_ghost(number: int, frame: object) -> None:
    """Ctrl-C on the way back: it is not the script's."""
    outcome.say("interrupted during the resume; nothing is lost. To try again, start the run again")
    _set_signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


# our handlers, and in whose place they stand
DEFAULTS = ((asked, signal.SIG_DFL), (interrupted_as_ghost, signal.default_int_handler))


def _wrap_exit() -> None:
    real = os._exit

    def _exit(status: int) -> None:
        if os.getpid() == _pid:
            _at_exit()
        real(status)
    _exit.__doc__ = real.__doc__
    os._exit = _exit


def _wrap_excepthook() -> None:
    """Ctrl-C in the tail is the user's wish, not another way than the recorded one."""
    real = sys.excepthook

    def excepthook(kind: type, error: BaseException, trace: object) -> None:
        global _interrupted
        _interrupted = _interrupted or issubclass(kind, KeyboardInterrupt)
        if phases.audit and phases.phase and not _interrupted:
            outcome.tell(error)
            for call in on_script_error:
                call(kind, error)
        # in set-up too: its words are swallowed there as a ghost's are
        if phases.phase and phases.target is not None and not _interrupted:
            error.__traceback__ = trace
            outcome.tell(error)
            outcome.diverged(words.RAISED_AS_GHOST.format(error=f"{kind.__name__}: {error}"))
        real(kind, error, trace)
    # a script that asks whether it is the hook of old gets the answer that it gets without us
    if real is sys.__excepthook__:
        sys.__excepthook__ = excepthook
    sys.excepthook = excepthook


def _at_exit() -> None:
    if os.getpid() != _pid or not phases.phase:
        return
    if not _interrupted:
        if phases.target is not None:
            outcome.diverged(words.ENDED_AS_GHOST)
        if phases.phase == phases.TAIL:
            outcome.diverged(words.ENDED_IN_TAIL)
    try:
        if phases.log is not None:
            phases.depth = 1
            images.wait(5.0)
            phases.log.flush()
            # what was registered before us ends after us: no part of the life that can be repeated
            if phases.phase == phases.RECORD:
                phases.log.put = phases.log.put_at = phases.log.note = _nothing
            phases.depth = 0
    except Exception as e:
        outcome.say(f"an error while the script ended: {type(e).__name__}: {e}")


def _nothing(*_: object) -> None:
    return None
