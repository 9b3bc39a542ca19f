"""Notices which plain values, containers and attributes change inside shields, while recording:
only those may be put back later.

Each place in the code that calls something shielded is watched the first times it is passed, then ever more
seldom (`phases.enter`).
"""

from __future__ import annotations

import sys
import time

from ..core import outcome, phases
from ..state import changed, walk

_clock = getattr(time.monotonic, "__wrapped__", time.monotonic)
ALWAYS_S, SHARE = 1.5, 0.005  # seconds that looking may cost at once, and of the time of a life
_before = None
_begun = _spent = 0.0


def install() -> None:
    """Watch from now on; called when set-up ends."""
    global _begun
    if not _begun:
        _begun, phases.on_seldom = _clock(), _look_before


def _look_before() -> None:
    global _before, _spent
    begun = _clock()
    if _spent >= ALWAYS_S + SHARE * (begun - _begun):
        return
    # of a transform's own tensors there is nothing to see
    if sys.modules["torch"]._C._functorch.maybe_current_level() is not None:
        return
    try:
        _before = walk.Walk().run(heap=False)
        phases.on_leave.insert(0, _look_after)
    except Exception as e:
        outcome.broke(e)
    _spent += _clock() - begun


def _look_after() -> None:
    global _before, _spent
    begun = _clock()
    before, _before = _before, None
    phases.on_leave.remove(_look_after)
    try:
        after = walk.Walk().run(heap=False)
        changed.inside(walk.changed(before, after))
        after.close()
    except Exception as e:
        outcome.broke(e)
    before.close()
    _spent += _clock() - begun
