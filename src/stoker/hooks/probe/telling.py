"""What a guard's and a batch's process says into its room: lines as it goes, facts at its end."""

from __future__ import annotations

import json
import os
import sys
import time

VERSION = 1
EVERY_S = 0.5  # between two lines of progress
_now = time.monotonic
_state: dict = {"room": "", "phase": "", "told": 0.0, "ended": False, "steps": 0}


def begin(room: str, phase: str) -> None:
    """This process has the room's order. How it ends is told there, whatever happens."""
    import atexit
    _state.update(room=room, phase=phase, pid=os.getpid())
    before = sys.excepthook

    def hook(kind: type, error: BaseException, trace: object) -> None:
        _ended("script" if issubclass(kind, (KeyboardInterrupt, SystemExit)) else "error", error=_place(kind, error, trace))
        before(kind, error, trace)
    sys.excepthook = hook
    atexit.register(lambda: _ended("script"))


def take(room: str) -> bool:
    """Whether the order is for this process: the first that comes here has it."""
    path = os.path.join(room, "taken")
    try:
        with open(path, "x") as f:
            f.write(str(os.getpid()))
        return True
    except FileExistsError:
        try:
            with open(path) as f:
                return f.read() == str(os.getpid())
        except OSError:
            return False
    except OSError:
        return True


def step(steps: int) -> None:
    """A sign of life, now and then."""
    _state["steps"] = steps
    if _now() - _state["told"] > EVERY_S:
        progress("")


def progress(text: str) -> None:
    """One line for who watches."""
    _state["told"] = _now()
    line("progress.jsonl", at=time.time(), phase=_state["phase"], steps=_state["steps"], text=text)


def line(name: str, **said: object) -> None:
    """One line into a file of the room, at once: the next moment may be the last."""
    try:
        fd = os.open(os.path.join(_state["room"], name), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, (json.dumps(said) + "\n").encode())
        finally:
            os.close(fd)
    except OSError:
        pass


def enough(**facts: object) -> None:
    """All that was asked is known. This process was started for it alone: it ends here, and does not come back."""
    _ended("enough", **facts)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(0)


def failed(kind: str, error: Exception) -> None:
    """A fault of ours: told, and the script goes on alone until it is ended."""
    _ended("enough", fault=f"{kind}: {type(error).__name__}: {error}")


def _ended(how: str, **facts: object) -> None:
    if _state["ended"] or os.getpid() != _state.get("pid"):
        return
    _state["ended"] = True
    path = os.path.join(_state["room"], "facts.json")
    try:
        with open(path + ".part", "w") as f:
            json.dump({"version": VERSION, "ended": how, "steps_seen": _state["steps"], **facts}, f)
        os.replace(path + ".part", path)
    except OSError:
        pass


def _place(kind: type, error: BaseException, trace: object) -> dict:
    file, number = "", 0
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if "site-packages" not in name and "stoker_hooks" not in name and not name.startswith("<"):
            file, number = name, trace.tb_lineno
        trace = trace.tb_next
    return {"type": kind.__name__, "message": str(error)[:500], "file": file, "line": number}
