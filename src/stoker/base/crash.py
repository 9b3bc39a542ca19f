"""Named places where a test may kill this process, to stand between two steps of the real program."""

from __future__ import annotations

import os
import signal

_name, _, _count = os.environ.get("STOKER_CRASH_AT", "").partition(":")
_left = int(_count or 1) if _name else 0


def point(name: str) -> None:
    """SIGKILL this process if STOKER_CRASH_AT=name[:n] says so and this is the n-th time; else nothing."""
    global _left
    if name != _name:
        return
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
