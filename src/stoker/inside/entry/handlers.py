"""Tell the caretaker in which process the script itself handles SIGTERM:
a stop begins with that signal there, and with SIGINT elsewhere.

Only what is set by `signal.signal` counts, and neither Stoker's own handlers nor those of torch (its launcher
forwards signals) and of the standard library.
"""

from __future__ import annotations

import os
import sys

from . import imports, stacks
from .processes import record

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_PASSED_ON = os.path.join(_LIBRARY, "asyncio", "unix_events.py")  # loop.add_signal_handler: the script's wish
_told: dict = {}  # pid -> what was told last


def install(_process: object) -> None:
    """Once the script imports `signal`."""
    imports.after("signal", _signal_is_here)


def _signal_is_here(module: object) -> None:
    real = module.signal

    def signal(signalnum: object, handler: object) -> object:
        before = real(signalnum, handler)
        stacks.taken(signalnum)
        if signalnum == module.SIGTERM and _is_the_scripts(sys._getframe(1)):
            _tell(callable(handler))
        return before

    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(signal, name, getattr(real, name))
    signal.__wrapped__ = real
    module.signal = signal


def _is_the_scripts(frame: object) -> bool:
    while frame is not None and (_passes_on(frame) or frame.f_code.co_filename == _PASSED_ON):
        frame = frame.f_back
    if frame is None:
        return False
    name = frame.f_code.co_filename
    packaged = f"{os.sep}site-packages{os.sep}" in name or f"{os.sep}dist-packages{os.sep}" in name
    if packaged:
        return f"-packages{os.sep}torch{os.sep}" not in name
    return not name.startswith((_HERE, _LIBRARY, "<frozen"))


def _passes_on(frame: object) -> bool:
    """Exact resume stands around `signal.signal` too, and calls what it found there."""
    return frame.f_code.co_name == "new_signal" and frame.f_code.co_filename.startswith(_HERE)


def _tell(handles: bool) -> None:
    pid = os.getpid()
    if _told.get(pid, False) != handles:
        _told[pid] = handles
        record(handles_term=handles)
