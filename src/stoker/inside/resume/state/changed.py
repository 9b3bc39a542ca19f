"""What was seen to change inside a call that a ghost skips: that, and nothing else, may be put back later.

`shifts` holds it by owner and name. Who sees it:
census.py in the script's own values, loader_state.py in what feeds a loader, restore.py in what an earlier
image has put back.
"""

from __future__ import annotations

import types

from ..core import leaves, outcome, words

shifts: dict = {}  # (id of owner, name) -> (owner, name)
_MOST = 4096


def inside(pairs: list) -> None:
    """Recording saw these change inside a shield (`walk.changed`)."""
    for owner, name in pairs:
        parts = owner.values() if type(owner) is dict else owner if type(owner) in (list, tuple) else ()
        if not any(map(_is_ours, parts)):  # arguments of a call that we changed: they would stay alive
            shifts[id(owner), name] = (owner, name)
    if len(shifts) > _MOST:
        outcome.refuse(words.TOO_MANY_SHIFTS.format(count=len(shifts)))


def _is_ours(thing: object) -> bool:
    return type(thing) is types.FunctionType and leaves.is_ours(thing.__code__.co_filename)


def forget() -> None:
    """Hold nothing of the script's any more."""
    shifts.clear()
