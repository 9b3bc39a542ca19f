"""Modules that call modules: each of our wrappers in between is a frame that plain Python does not have, and
the limit of recursion is for the script's own.
From a depth on the limit is raised by as many frames as are ours, and lowered again on the way out;
the script is told, and sets, the one without them.
"""

from __future__ import annotations

import _thread
import sys

FROM = 16  # so many are not worth the work
_MORE = FROM + 8  # those, the outermost wrappers, and the calls that raise and lower
level = 0  # our frames around nested calls, on the stacks of all threads now
_wanted = _in_force = 0  # of all threads; the second is part of the interpreter's limit
_real_get, _real_set = sys.getrecursionlimit, sys.setrecursionlimit
_lock = _thread.RLock()


def goes_in(at: int) -> None:
    """One more frame of ours is on the stack, below `at` others."""
    if not hasattr(sys.getrecursionlimit, "__wrapped__"):
        _stand_in()
    _add(_MORE if at == FROM else 1)


def goes_out(at: int) -> None:
    _add(-_MORE if at == FROM else -1)


def _add(count: int) -> None:
    global _wanted, _in_force
    with _lock:
        _wanted += count
        try:
            _real_set(_real_get() - _in_force + _wanted)
            _in_force = _wanted
        except RecursionError:  # the stack is too high for the lower limit: it is set at the next change
            pass


def _stand_in() -> None:
    from .methods import Of, replace

    def getrecursionlimit(_of, /):
        return _real_get() - _in_force

    def setrecursionlimit(_of, limit, /):
        global _in_force
        with _lock:
            if type(limit) is int and 0 < limit < 1 << 30:
                try:
                    _real_set(limit + _wanted)
                    _in_force = _wanted
                    return
                except RecursionError:
                    pass
            _real_set(limit)  # which fails, with the number that was given
    replace(sys, "getrecursionlimit", getrecursionlimit, Of("sys"))
    replace(sys, "setrecursionlimit", setrecursionlimit, Of("sys"))
