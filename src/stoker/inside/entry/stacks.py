"""Let the caretaker see where a process of a training waits:
a real-time signal makes it write its stacks into a file of the run folder.

The caretaker sends it only to a process whose record it has read, that holds that file open, and that catches
the signal at that moment.
"""

from __future__ import annotations

import os

from .aside import aside
from .processes import record

FROM, TO = 57, 45  # real-time signals: libraries count theirs from the lowest or the highest number
_registered = 0


def install(_process: object) -> None:
    """Once torch is imported. Children by fork have it too."""
    global _registered
    import _signal
    import faulthandler

    free = next((n for n in range(FROM, TO, -1) if _signal.getsignal(n) == _signal.SIG_DFL), 0)
    if not free or _registered:
        return
    path = os.path.join(os.path.realpath(os.environ["STOKER_HOOKS"]), f"stacks-{os.getpid()}")
    fd = aside(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    faulthandler.register(free, file=fd, all_threads=True, chain=False)
    _registered = free
    record(stacks={"signal": free, "fd": fd, "path": path})


def taken(number: object) -> None:
    """The script sets a handler of its own for that signal: the caretaker sends it no more."""
    if _registered and number == _registered:
        record(stacks={})
