"""Which exception ended this process, if one did:
it is said at exit, when the interpreter has printed it and remembers it in `sys`.
A traceback in the log may be one that the script handled, or a thread's.
Nothing of the script's own code is called to say it."""

from __future__ import annotations

import atexit
import os
import sys

from .processes import record

FRAMES_MAX = 200  # the innermost


def install(_process: object) -> None:
    """First of all that is registered, so the last that is called."""
    atexit.register(_at_exit, os.getpid())


def _at_exit(pid: int) -> None:
    if os.getpid() != pid:  # a forked child, which ends in a way of its own
        return
    try:
        record(uncaught=_told(), rank=os.environ.get("RANK"))
    except Exception:  # the script may have taken apart what this needs: then the log alone tells
        pass


def _told() -> dict | None:
    """None where no exception was left: SystemExit, or an end without any."""
    kind = getattr(sys, "last_type", None)
    if not isinstance(kind, type):
        return None
    error, trace = getattr(sys, "last_value", None), getattr(sys, "last_traceback", None)
    return {"type": _name(kind), "message": _message(kind, error), "frames": _frames(trace)}


def _name(kind: type) -> str:
    """As a traceback shows it."""
    name, module = (type.__dict__[each].__get__(kind) for each in ("__qualname__", "__module__"))
    return name if module in ("builtins", "__main__") else f"{module}.{name}"


def _message(kind: type, error: object) -> str | None:
    """The first line, of an exception that was given one text and shows it as Python does;
    None for all others."""
    given = BaseException.args.__get__(error) if isinstance(error, BaseException) else ()
    own = next(
        each
        for each in type.__dict__["__mro__"].__get__(kind)
        if "__str__" in type.__dict__["__dict__"].__get__(each)
    )
    if own is not BaseException or len(given) != 1 or type(given[0]) is not str:
        return None
    return given[0].partition("\n")[0][:1000]


def _frames(trace: object) -> list:
    """File and line of each, the outermost first."""
    found: list = []
    while trace is not None:
        place = [trace.tb_frame.f_code.co_filename, trace.tb_lineno]
        if place not in found[-1:]:
            found.append(place)
        trace = trace.tb_next
    return found[-FRAMES_MAX:]
