"""Notices which plain values, containers and attributes change inside shields, while recording: only those may be put back later.

Each place in the code that calls something shielded is watched the first times it is passed, then ever more seldom (`life.enter`).
"""

from __future__ import annotations

import sys
import time

from . import fate, image, life, walk

_clock = getattr(time.monotonic, "__wrapped__", time.monotonic)
ALWAYS_S, SHARE = 1.5, 0.005  # seconds that looking may cost at once, and of the time of a life
_before = None
_begun = _spent = 0.0


def install() -> None:
    """Watch from now on; called when set-up ends."""
    global _begun
    if not _begun:
        _begun, life.on_seldom = _clock(), _look_before


def _look_before() -> None:
    global _before, _spent
    begun = _clock()
    if _spent >= ALWAYS_S + SHARE * (begun - _begun):
        return
    if sys.modules["torch"]._C._functorch.maybe_current_level() is not None:  # of a transform's own tensors there is nothing to see
        return
    try:
        _before = walk.Walk().run(heap=False)
        life.on_leave.insert(0, _look_after)
    except Exception as e:
        fate.broke(e)
    _spent += _clock() - begun


def _look_after() -> None:
    global _before, _spent
    begun = _clock()
    before, _before = _before, None
    life.on_leave.remove(_look_after)
    try:
        after = walk.Walk().run(heap=False)
        image.shifted(walk.changed(before, after))
        after.close()
    except Exception as e:
        fate.broke(e)
    before.close()
    _spent += _clock() - begun
