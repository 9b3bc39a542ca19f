"""Which logger a number was handed to, where a script has several:
two runs of W&B, a Trainer for each fold, two progress bars."""

from __future__ import annotations

import weakref

_objects: dict = {}  # id -> (weak reference, number): an id is given to another object when the first is gone
_made = 0
_of_names: dict = {}  # (source, name) -> owners in the order in which they came


def number(owner: object) -> int:
    """The same for the same object, over all calls."""
    global _made
    held = _objects.get(id(owner))
    if held is not None and held[0]() is owner:
        return held[1]
    _made += 1
    _objects[id(owner)] = (weakref.ref(owner), _made)
    return _made


def sorted_out(source: str, values: dict, owner: object) -> dict:
    """`{nth: values}`: for each name, the how many-th owner of that name this one is. Mostly all are 1."""
    found: dict = {}
    for name, value in values.items():
        owners = _of_names.setdefault((source, name), [])
        if owner not in owners:
            owners.append(owner)
        found.setdefault(owners.index(owner) + 1, {})[name] = value
    return found
