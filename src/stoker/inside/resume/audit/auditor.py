"""The life of an audit: a child of the agent's comes to an image of a run that goes on, as `stoker start`
would, trains on under the tail check to the place of the next image,
and there its whole state is compared with that one.

`phases.folder` is its room (requests.py), the only place where it writes;
the log is the run's, and is only read. It never records:
the log holds more than the way to its goal, so it is in its tail until it ends.
How it ended stands in `verdict.json`, whole or not at all.

verdict.json: `{"verdict": "bit-exact", "different" or "not audited", "why", "values_equal", "seconds",
"at"}`. Before "different", it writes resume/refused with the reason; the run then uses no image.
`phases.audit` is the run's resume folder, `phases.goal` the place of the next image.
"""

from __future__ import annotations

import json
import os
import sys
import time

from ...looks import isinstance
from ..core import early_log, log_file, outcome, own, phases, store, words

SAME, DIFFERENT, NOT_AUDITED = "bit-exact", "different", "not audited"
VERDICT, SCRATCH = "verdict.json", "files"
WAIT_S = 120.0  # for the run to record what is behind the image
# scratch.py does not hold them back
_CALLS = ("chown", "lchown", "fchown", "mkfifo", "mknod", "setxattr", "removexattr", "killpg")
_OUTSIDE = frozenset(
    (
        "subprocess.Popen",
        "os.posix_spawn",
        "os.spawn",
        "os.system",
        "os.exec",
        "pty.spawn",
        "os.forkpty",
        "socket.connect",
        "socket.bind",
        "socket.sendto",
    )
)
# parts of the standard library that run small programs to ask
_HELPERS = ("platform.py", "uuid.py", "ctypes" + os.sep + "util.py")
_MACHINE = ("allocate memory", "out of memory", "No space left", "DataLoader worker", "Too many open files")
_exit, _getpid, _kill = os._exit, os.getpid, os.kill
_clock = getattr(time.monotonic, "__wrapped__", time.monotonic)
_wall = getattr(time.time, "__wrapped__", time.time)
_sleep = getattr(time.sleep, "__wrapped__", time.sleep)
_begun = _clock()
_room = ""
_pid = 0
_order: dict = {}


def begin(process: object) -> None:
    """At the start of a process of an audit, before any other part of ours:
    from here on it writes into its room only."""
    global _room, _pid
    from ... import scratch
    from ...entry import imports
    _room = os.environ["STOKER_RESUME_DIR"]
    own.make(os.path.join(_room, SCRATCH))
    scratch.install(os.path.join(_room, SCRATCH), always=(_room,))
    temporary = os.path.realpath(os.environ.get("TMPDIR") or "/tmp")
    scratch.hold_all((os.path.join(temporary, "pymp-"),))  # where loader workers hand tensors over
    scratch.other_files(imports.after)
    imports.after("torch", _torch_files)
    for name in _CALLS:
        if hasattr(os, name):
            setattr(os, name, _refused(name))
    os.kill = _kill_own
    if process.role == "script":
        _pid = _getpid()
        phases.audit = os.path.dirname(os.path.dirname(_room))
        outcome.on_difference.append(differs)
        outcome.on_dead_end.append(cannot)
        sys.addaudithook(_hear)
        _prepare()


def _prepare() -> None:
    """Before the run has gone on much: the files as they were at the image."""
    from . import auditor_files  # behind scratch.install: world.opening takes the `open` that it finds
    try:
        _order.update(json.loads(own.read(os.path.join(_room, "order.json"))))
        then, now = (store.meta(_room, _order[each])[1] for each in ("from", "image"))
        phases.goal = now["where"]
        auditor_files.lay_out(then["parts"]["files"], now["parts"]["files"], cannot)
    except (store.Damaged, OSError, KeyError, ValueError, TypeError, MemoryError) as e:
        cannot(words.AUDIT_ROOM.format(error=e))


def _torch_files(torch: object) -> None:
    """torch writes with its own C++, and reads through open()."""
    import functools

    from ... import scratch
    real = torch.save

    @functools.wraps(real)
    def save(obj: object, f: object, *args: object, **kwargs: object) -> object:
        return real(obj, scratch.for_writing(f) if isinstance(f, (str, os.PathLike)) else f, *args, **kwargs)

    torch.save = torch.serialization.save = save


def _refused(name: str) -> object:
    def call(*_: object, **__: object) -> None:
        if _getpid() == _pid:
            cannot(words.AUDIT_CALL.format(name=name))
        raise PermissionError(1, "Operation not permitted")
    return call


def _kill_own(pid: int, number: int) -> None:
    """Signals go to this process and to what it started."""
    if number and pid != _getpid() and not _is_ours(pid):
        _refused("kill")()
    _kill(pid, number)


def _is_ours(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return int(f.read().rpartition(")")[2].split()[1]) == _getpid()
    except (OSError, ValueError, IndexError):
        return True  # there is none


def _hear(event: str, args: tuple) -> None:
    """Set-up runs for real, beside the run: what would reach others is not done a second time.
    Behind it, unsupported.py has its say."""
    if (
        event in _OUTSIDE
        and phases.phase <= phases.SETUP
        and _getpid() == _pid
        and not _any_port(event, args)
    ):
        frame = sys._getframe(1)
        while frame is not None:
            name = frame.f_code.co_filename
            if name.endswith(_HELPERS) or early_log.classify(name) == early_log.LIBRARY:
                return
            if early_log.classify(name) == early_log.YES:
                what = args[0] if args and isinstance(args[0], str) else event
                cannot(words.AUDIT_OUTSIDE.format(what=what, where=f"{name}:{frame.f_lineno}"))
            frame = frame.f_back


def _any_port(event: str, args: tuple) -> bool:
    """A socket at a port that the system chooses takes nothing from the run.
    urllib3 opens one to see whether there is IPv6."""
    return event == "socket.bind" and type(args[1]) is tuple and args[1][1] == 0


# ---- the way

def choose() -> object:
    """The image that this life goes to. Does not return where there is none."""
    from ..image import images
    try:
        target = images.Image(*store.verified(_room, _order["from"]))
    except (store.Damaged, OSError, KeyError, TypeError, MemoryError) as e:
        cannot(words.AUDIT_ROOM.format(error=e))
    _wait(target.meta.get("kept_graphs", ""))
    return target


def _wait(kept: str) -> None:
    """Until the log holds more than the way to the goal,
    and the graphs that were alive at the image are let go."""
    until = _clock() + WAIT_S
    while True:
        recorded = log_file.Reader(phases.log.path).count > phases.goal["event"]
        if recorded and (not kept or os.path.exists(os.path.join(phases.audit, "graphs", kept))):
            return
        if _clock() > until:
            cannot(words.AUDIT_GRAPH if recorded else words.AUDIT_NOTHING)
        _sleep(1.0)


def arrived() -> None:
    """The script stands where the image was taken that it is compared with. Does not return."""
    from ..core import leaves
    from . import sameness
    why = ""
    try:
        _, then, data = store.verified(_room, _order["image"])
        why = leaves.quietly(sameness.difference)(then, memoryview(data), phases.goal)
    except Exception as e:
        outcome.tell(e)
        cannot(words.AUDIT_MACHINE.format(error=e) if _is_of_the_machine(type(e), e) else
               words.INTERNAL.format(error=f"{type(e).__name__}: {e}"))
    if why:
        differs(why)
    _end(SAME)


# ---- the end

def differs(reason: str) -> None:
    """It came to something else than the run. Does not return."""
    _end(DIFFERENT, reason)


def cannot(reason: str) -> None:
    """Nothing was found out. Does not return."""
    _end(NOT_AUDITED, reason)


def script_failed(kind: type, error: BaseException) -> None:
    """The script ended with an error that the run did not meet. Does not return."""
    told = f"{kind.__name__}: {error}"
    if _is_of_the_machine(kind, error):
        cannot(words.AUDIT_MACHINE.format(error=told))
    differs(words.RAISED_AS_GHOST.format(error=told))


def _is_of_the_machine(kind: type, error: BaseException) -> bool:
    return issubclass(kind, (MemoryError, OSError, store.Damaged)) or any(
        each in str(error) for each in _MACHINE
    )


def _end(verdict: str, why: str = "") -> None:
    """Whoever is asked by several threads: the first says it."""
    phases.depth, phases.leaving = 1, True
    if _getpid() != _pid:
        _exit(1)
    if verdict == DIFFERENT:
        steps = {"first": f"{_order.get('from_step', 0):,}", "last": f"{_order.get('step', 0):,}"}
        _put(os.path.join(phases.audit, outcome.REFUSED), words.AUDIT.format(**steps, what=why))
    compared = phases.log.values_compared if phases.log is not None else 0
    body = {
        "verdict": verdict,
        "why": why,
        "values_equal": compared,
        "seconds": round(_clock() - _begun, 1),
        "at": _wall(),
    }
    _put(os.path.join(_room, VERDICT), json.dumps(body))
    _exit(0)


def _put(path: str, text: str) -> None:
    """Whole or not at all, past all that this process has put in the place of the system's calls."""
    own.write(path, text.encode(errors="replace"))
