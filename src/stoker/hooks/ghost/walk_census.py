"""Notices which plain values, containers and attributes change inside shields, while recording: only those may be put back later.

Each place in the code that calls something shielded is watched the first times it is passed, then ever more seldom.
"""

from __future__ import annotations

import sys
import time

from . import fate, image, life, walk

_clock = getattr(time.monotonic, "__wrapped__", time.monotonic)
ALWAYS_S, SHARE = 1.5, 0.005  # seconds that looking may cost at once, and of the time of a life
_counts: dict = {}  # place -> how often it was passed
_enter = _leave = None  # what life.on_enter and life.on_leave were
_before = None
_begun = _spent = 0.0


def install() -> None:
    """Watch from now on; called when set-up ends."""
    global _enter, _leave, _begun
    if _begun:
        return
    _begun = _clock()
    _enter, _leave = life.on_enter, life.on_leave
    life.on_enter, life.on_leave = _entering, _leaving


def _entering() -> None:
    if _enter is not None:
        _enter()
    if walk._stale:
        walk.forget_stale()
    if life.phase != life.RECORD:
        return
    caller = sys._getframe(2)
    # the same call may have two values of f_lasti (bytecode.call_at): it is looked at a little more often then, which no other life sees
    place = (id(caller.f_back.f_code), caller.f_back.f_lasti, caller.f_code.co_name) if caller.f_back is not None else None
    count = _counts.get(place, 0) + 1
    _counts[place] = count
    if not count & (count - 1) and _spent < ALWAYS_S + SHARE * (_clock() - _begun):
        _look_before()


def _leaving() -> None:
    if _before is not None:
        _look_after()
    if _leave is not None:
        _leave()


def _look_before() -> None:
    global _before, _spent
    if sys.modules["torch"]._C._functorch.maybe_current_level() is not None:  # of a transform's own tensors there is nothing to see
        return
    begun = _clock()
    try:
        _before = walk.Walk().run(heap=False)
    except Exception as e:
        fate.broke(e)
    _spent += _clock() - begun


def _look_after() -> None:
    global _before, _spent
    begun = _clock()
    before, _before = _before, None
    try:
        after = walk.Walk().run(heap=False)
        image.shifted(walk.changed(before, after))
        after.close()
    except Exception as e:
        fate.broke(e)
    before.close()
    _spent += _clock() - begun
