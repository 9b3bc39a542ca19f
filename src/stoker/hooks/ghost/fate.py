"""How a recording ends, and how a life that does not go as recorded makes room for another try.

Nothing here raises into the user's code. What is written: `state.json` in the resume folder, a file `bad` in an image's folder.
"""

from __future__ import annotations

import os
import sys

from . import life, words

TRIES = 5  # lives that may begin one after another without anybody asking; after that the script runs from its start, on the record
REFUSED = "refused"  # in life.folder: the reason of `refuse_for_all`
_TRIES = "STOKER_RESUME_TRIES"
passed: dict = {}  # reason -> how many points
stopped = ""  # why recording ended for good in this life
_stderr = None
_command: list = []
_environment: dict = {}
_cwd = ""


def remember_start() -> None:
    """Keep what is needed to start this process again exactly as it was started: command line, environment, folder, stderr."""
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


def tries() -> int:
    """How many lives before this one diverged, in this attempt."""
    return int(os.environ.get(_TRIES, "0") or 0)


def say(line: str) -> None:
    """A line on the real standard error, whatever phase this life is in. In a run of Stoker's, `show` tells it from state.json: the log
    belongs to the script."""
    if os.environ.get("STOKER_RUN_DIR") and not os.environ.get("STOKER_RESUME_DEBUG"):
        return
    try:
        os.write(2 if _stderr is None else _stderr, f"stoker: {line}\n".encode(errors="replace"))
    except OSError:
        pass


def refuse(reason: str) -> None:
    """Recording stops for good; images that are whole stay good. On the way to an image, or in the tail: not as recorded."""
    global stopped
    if life.target is not None or life.phase in (life.GHOST, life.TAIL):
        diverged(reason)
    if life.phase == life.OFF:
        return
    before, life.depth = life.depth, 1
    try:
        stopped = stopped or reason
        life.turn_off()
        if life.log is not None:
            life.log.close()
        image = (state().get("image") or {}).get("n")
        write_state(state="not resumable" if image is None else "resumable", reason=reason, step=life.steps)
    finally:
        life.depth = before


def refuse_for_all(reason: str) -> None:
    """As `refuse`, and no later life of this run uses an image either: what they are of is not all of the run."""
    fd = os.open(os.path.join(life.folder, REFUSED), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.write(fd, reason.encode(errors="replace"))
    os.close(fd)
    refuse(reason)
    write_state(state="not resumable", reason=reason)


def refused() -> str:
    """Why no image of this run may be used, or ""."""
    try:
        fd = os.open(os.path.join(life.folder, REFUSED), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, 4096).decode(errors="replace")
    finally:
        os.close(fd)


def pass_point(reason: str) -> None:
    """No image here; the next point may do."""
    passed[reason] = passed.get(reason, 0) + 1
    total = sum(passed.values())
    if not total & (total - 1):
        write_state()


def diverged(reason: str) -> None:
    """This life is not the recorded one: its image is not used again, its writes are taken back, the script starts once more.
    Does not return."""
    life.depth, life.leaving = 1, True
    image = life.target or life.resumed
    n = getattr(image, "n", None)
    say(f"this is not how it was recorded: {reason}. Trying {'an older image' if n else 'the start'} instead.")
    life.turn_off()
    for undo in (lambda: _mark_bad(n, reason), lambda: _undo_files(image), _end_children):
        try:
            undo()
        except Exception as e:
            say(f"while making room for another try: {type(e).__name__}: {e}")
    again()


def broke(error: BaseException) -> None:
    """A fault of ours. While recording the user's call goes on, without us."""
    tell(error)
    reason = words.INTERNAL.format(error=f"{type(error).__name__}: {error}")
    if life.phase in (life.GHOST, life.TAIL) or life.target is not None:
        diverged(reason)
    refuse(reason)


def tell(error: BaseException) -> None:
    """For whoever looks for the fault: the whole traceback, with STOKER_RESUME_DEBUG."""
    if os.environ.get("STOKER_RESUME_DEBUG"):
        import traceback
        say("".join(traceback.format_exception(type(error), error, error.__traceback__)))


def again() -> None:
    """Become the process that was started, anew."""
    environment = {**_environment, _TRIES.encode(): str(tries() + 1).encode()}
    try:
        import signal
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.chdir(_cwd)
        os.execve("/proc/self/exe", _command, environment)
    except OSError as e:
        say(f"the script cannot be started again: {e}")
    os._exit(70)


def state() -> dict:
    """What `state.json` says; empty when there is none that can be read."""
    import json
    try:
        fd = os.open(os.path.join(life.folder, "state.json"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        found = json.loads(os.read(fd, 1 << 20))
    except (OSError, ValueError):
        return {}
    finally:
        os.close(fd)
    return found if isinstance(found, dict) else {}


def write_state(**fields: object) -> None:
    """Merge into `state.json`, whole or not at all."""
    if not life.folder:
        return
    import json
    before, life.depth = life.depth, 1
    path = os.path.join(life.folder, "state.json")
    try:
        data = json.dumps({**state(), "points_passed": passed, **fields}).encode()
        fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)
        os.replace(path + ".new", path)
    except OSError as e:
        say(f"{path} cannot be written: {e}")
    finally:
        life.depth = before


def _mark_bad(n: object, reason: str) -> None:
    write_state(tried=[*(state().get("tried") or ())[-9:], {"image": n, "why": reason}])
    if n is None:
        return
    fd = os.open(os.path.join(life.folder, "images", str(n), "bad"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(fd, reason.encode(errors="replace"))
    os.close(fd)


def _undo_files(image: object) -> None:
    files = sys.modules.get(__package__ + ".files")
    if files is not None:
        files.undo(image)


def _end_children() -> None:
    """The loader's workers would outlive an exec as somebody else's."""
    processes = sys.modules.get("multiprocessing.process")
    for child in list(getattr(processes, "_children", ())):
        child.kill()
    for child in list(getattr(processes, "_children", ())):
        child.join(5)
