"""A trial: the end of each step goes into steps.bin, how much evaluation lay before one into pauses.bin, and
nothing else is done to the script. May be stopped and continued at any time.

steps.bin: CLOCK_MONOTONIC in ns, a u64 for each step. pauses.bin: for each step behind an evaluation, its
end and how long the evaluation took, two u64 in ns.
"""

from __future__ import annotations

import os
import struct
import time

from ..clock import marks
from . import order, windows

_pack = struct.Struct("<Q").pack
_pair = struct.Struct("<QQ").pack
_moment = time.monotonic_ns


def stepper(seconds: float, steps: int) -> object:
    """What is called at the end of each step, as of now."""
    fd, pauses = (
        os.open(
            os.path.join(order.room, name),
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o600,
        )
        for name in ("steps.bin", "pauses.bin")
    )
    windows.watch_the_clock()
    known = windows.spent()[marks.EVALUATION]
    until = _moment() + int(seconds * 1e9) if seconds > 0 else 1 << 62
    most = steps if steps > 0 else 1 << 62

    def step() -> None:
        nonlocal known
        moment = _moment()
        evaluated = windows.spent()[marks.EVALUATION]
        if evaluated > known:
            os.write(pauses, _pair(moment, evaluated - known))
        known = evaluated
        os.write(fd, _pack(moment))
        if marks.steps >= most or moment >= until:
            order.finish("enough")
    return step
