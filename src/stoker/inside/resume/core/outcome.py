"""How a recording ends, and how a life that does not go as recorded makes room for another try.

Nothing here raises into the user's code. What is written:
`state.json` in the resume folder, a file `bad` in an image's folder.

By phase: `refuse` RECORD, SETUP · `diverged` GHOST, TAIL · `broke` is `refuse` in RECORD, `diverged` in
GHOST and TAIL.
"""

from __future__ import annotations

import os
import sys
import time
from _thread import RLock, get_ident

from ...looks import isinstance
from . import own, pace, phases, words

# lives that may begin one after another without anybody asking;
# after that the script runs from its start, on the record
TRIES = 5
REFUSED = "refused"  # in phases.folder: the reason of `refuse_for_all`
_TRIES = "STOKER_RESUME_TRIES"
_monotonic = getattr(time.monotonic, "__wrapped__", time.monotonic)  # the real one
passed: dict = {}  # reason -> how many points
stopped = ""  # why recording ended for good in this life
asked: list = []  # reasons of other threads, which wait for the main thread
# called first of all with the reason when this life is not the recorded one: an audit ends there
on_difference: list = []
on_dead_end: list = []  # the same when this life cannot go on and nothing is known
_stderr = None
_command: list = []
_environment: dict = {}
_cwd = ""
LATE_S = 25.0  # behind the moment when the first image was wanted: "not resumable" then, until there is one
_late_from = 0.0
# state.json is told by the main thread, also out of a signal handler, and by the image's writer
_lock = RLock()
# what state.json says: this process is the only one that writes it
_known: dict = {"folder": "", "state": {}}
_told = _wanted = 0  # versions of it: on the disk, in memory


class Obstacle(Exception):
    """Something of the script's stands in the way. `sentence` says what; it is no fault of ours."""

    sentence = property(str)


def remember_start() -> None:
    """Keep what is needed to start this process again exactly as it was started:
    command line, environment, folder, stderr."""
    global _stderr, _cwd
    with open("/proc/self/cmdline", "rb") as f:
        _command[:] = f.read().split(b"\0")[:-1]
    with open("/proc/self/environ", "rb") as f:
        _environment.update(pair.partition(b"=")[::2] for pair in f.read().split(b"\0") if b"=" in pair)
    _cwd = os.getcwd()
    try:
        import fcntl
        _stderr = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 100)
    except OSError:
        _stderr = None
    os.register_at_fork(after_in_child=_unlocked)  # its owner may be a thread that the child has not


def tries() -> int:
    """How many lives before this one diverged, in this attempt."""
    return int(os.environ.get(_TRIES, "0") or 0)


def started_in() -> str:
    """The folder that this process was started in."""
    return _cwd


def say(line: str) -> None:
    """A line on the real standard error, whatever phase this life is in.
    In a run of Stoker's, `show` tells it from state.json: the log belongs to the script."""
    if os.environ.get("STOKER_RUN_DIR") and not os.environ.get("STOKER_RESUME_DEBUG"):
        return
    try:
        os.write(2 if _stderr is None else _stderr, f"stoker: {line}\n".encode(errors="replace"))
    except OSError:
        pass


def refuse(reason: str) -> None:
    """Recording stops for good; images that are whole stay good. On the way to an image, or in the tail:
    not as recorded."""
    global stopped
    if phases.target is not None or phases.phase in (phases.GHOST, phases.TAIL):
        diverged(reason)
    if phases.phase == phases.OFF:
        return
    # the shared state is the main thread's alone: it does it before its next write, and before any image
    if get_ident() != phases.main:
        asked.append(reason)
        return
    before, phases.depth = phases.depth, 1
    try:
        stopped = stopped or reason
        phases.turn_off()
        if phases.log is not None:
            phases.log.close()
        write_state(state="resumable", step=phases.steps)
    finally:
        phases.depth = before


def refuse_for_all(reason: str) -> None:
    """As `refuse`, and no later life of this run uses an image either:
    what they are of is not all of the run."""
    own.make(phases.folder)
    own.write(os.path.join(phases.folder, REFUSED), reason.encode(errors="replace"))
    refuse(reason)
    write_state()


def refused() -> str:
    """Why no image of this run may be used, or ""."""
    try:
        return own.read(os.path.join(phases.folder, REFUSED), 4096).decode(errors="replace")
    except OSError:
        return ""


def pass_point(reason: str) -> None:
    """No image here; the next point may do."""
    passed[reason] = passed.get(reason, 0) + 1
    total = sum(passed.values())
    if not total & (total - 1):
        write_state()


def diverged(reason: str) -> None:
    """This life is not the recorded one: its image is not used again, the files are again as it found them,
    the script starts once more. An audit ends with that. Does not return."""
    for call in on_difference:
        call(reason)
    phases.depth, phases.leaving = 1, True
    image = phases.target or phases.resumed
    n = getattr(image, "n", None)
    say(
        f"the resumed script differs from the recording: {reason}. Retrying from "
        f"{'an older image (or from the start, if no older image exists)' if n else 'the start'}."
    )
    phases.turn_off()
    for undo in (lambda: _mark_bad(n, reason), _end_children, _give_files_back):
        try:
            undo()
        except Exception as e:
            say(f"the next try could not be prepared: {type(e).__name__}: {e}")
    again()


def broke(error: BaseException) -> None:
    """A fault of ours, or an Obstacle. While recording the user's call goes on, without us."""
    if error is phases.from_signal:
        raise error
    tell(error)
    reason = (
        error.sentence
        if isinstance(error, Obstacle)
        else words.INTERNAL.format(error=f"{type(error).__name__}: {error}")
    )
    if not isinstance(error, Obstacle):
        for call in on_dead_end:
            call(reason)
    if phases.phase in (phases.GHOST, phases.TAIL) or phases.target is not None:
        diverged(reason)
    refuse(reason)


def tell(error: BaseException) -> None:
    """For whoever looks for the fault: the whole traceback, with STOKER_RESUME_DEBUG."""
    if os.environ.get("STOKER_RESUME_DEBUG"):
        import traceback
        say("".join(traceback.format_exception(type(error), error, error.__traceback__)))


def again() -> None:
    """Become the process that was started, anew."""
    for call in on_dead_end:
        call(words.AUDIT_NOT_AGAIN)
    environment = {**_environment, _TRIES.encode(): str(tries() + 1).encode()}
    try:
        import signal
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.chdir(_cwd)
        os.execve("/proc/self/exe", _command, environment)
    except OSError as e:
        say(f"the script cannot be restarted: {e}")
    os._exit(70)


def state() -> dict:
    """What `state.json` says; empty when there is none that can be read."""
    with _lock:
        return dict(_state())


def write_state(**fields: object) -> None:
    """Merge into `state.json`, whole or not at all; from any thread.
    That recording has ended, and why, is said whatever `fields` say.

    `{"state": "recording", "resumable", "not resumable" or "off", "reason", "step", "image",
    "points_passed": {reason: n}, "log_bytes", "resumed", "tried": [{"image", "why"}], "lives",
    "not_audited"?: why, "not_given_back"?: {"attempt", "files"}, "given_back"?: [{"attempt", "aside"}],
    "again"?: [{"what", "where"}]}`, each null where there is none.
    - `image`: `{"n", "step", "at", "bytes", "stall_s", "every_s" or "every_steps", "cost", "back_s",
      "setup_s", "trained_s"}`
    - `resumed`: `{"attempt", "step", "seconds", "ghost_s", "lost_steps", "values_equal", "grade",
      "put_back": [path], "out_bytes"}`
    - `lives`: `[{"attempt", "from", "out_bytes", "err_bytes"}]`, one when a life begins its recording
      (`from` 0) or has resumed: the attempt that made the image, and how long its logs were then. So the
      logs of all attempts can be joined.
    - "not resumable" with an image: the image cannot be used. "resumable" with a reason: recording has
      ended, the image is good.

    When an attempt ends as `exited`, the agent writes exit.json and then removes images and log.
    """
    global _wanted
    if not phases.folder:
        return
    main = get_ident() == phases.main
    before = phases.depth
    if main:
        phases.depth = 1
    try:
        with _lock:
            known = _state()
            known.update(fields, points_passed=dict(passed))
            _judge(known)
            _wanted += 1
            _store(known)
    except OSError as e:
        say(f"{phases.folder}/state.json cannot be written: {e}")
    finally:
        if main:
            phases.depth = before


def no_image_yet() -> None:
    """Asked now and then while recording: a run in which no point is one says so while it is young.
    It goes on trying."""
    global _late_from
    if _late_from < 0 or phases.phase != phases.RECORD:
        return
    if _state().get("image"):
        _late_from = -1.0
        return
    if not pace.begun() or pace.writing or not _wanted_one():
        _late_from = 0.0
    elif not _late_from:
        _late_from = _monotonic() + LATE_S
    elif _monotonic() > _late_from:
        _late_from = -1.0
        most = max(passed, key=passed.get) if passed else words.NO_POINT
        write_state(state="not resumable", reason=words.NO_IMAGE.format(reason=most), step=phases.steps)


def _wanted_one() -> bool:
    """Whether the first image is due by now; where steps are counted and there is none at all, waiting for
    one is no excuse."""
    if pace._every_steps:
        return not phases.steps or phases.steps >= pace._every_steps
    return _monotonic() - pace._begun >= pace._every_s


def _state() -> dict:
    """The dict itself; read once, for a process keeps what it has told."""
    if _known["folder"] != phases.folder:
        _known.update(folder=phases.folder, state=_read())
    return _known["state"]


def _read() -> dict:
    import json
    try:
        found = json.loads(own.read(os.path.join(phases.folder, "state.json"), 1 << 20))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _judge(known: dict) -> None:
    """Whoever tells of an image cannot know what was refused meanwhile."""
    for_all = refused()
    broken = phases.undo_broken if known.get("image") else ""
    if for_all or broken:
        known.update(state="not resumable", reason=for_all or broken)
    elif stopped:
        known.update(state="resumable" if known.get("image") else "not resumable", reason=stopped)


def _store(known: dict) -> None:
    """A signal handler may come in between and store a newer one:
    what is older is stored no more, or once again."""
    global _told
    import json
    path = os.path.join(phases.folder, "state.json")
    while _told < _wanted:
        version = _wanted
        own.make(phases.folder)
        own.write(path, json.dumps(known).encode(), beside=f"state.json.{version}")
        _told = version


def _unlocked() -> None:
    global _lock
    _lock = RLock()


def _mark_bad(n: object, reason: str) -> None:
    write_state(tried=[*(state().get("tried") or ())[-9:], {"image": n, "why": reason}])
    if n is None:
        return
    from . import store
    store.mark_bad(phases.folder, n, reason)


def _give_files_back() -> None:
    for call in phases.on_another_life:
        call()


def _end_children() -> None:
    """The loader's workers would outlive an exec as somebody else's."""
    processes = sys.modules.get("multiprocessing.process")
    for child in list(getattr(processes, "_children", ())):
        child.kill()
    for child in list(getattr(processes, "_children", ())):
        child.join(5)
