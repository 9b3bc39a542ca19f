"""What only waits for the garbage collector:
tensors and arrays of things that hold each other in a circle and that nothing else holds (a trainer and its
callbacks, an environment and its spaces). No path leads to them, and none ever will: they need no saving.

As the collector does it (CPython, `Modules/gcmodule.c`):
what is held more often than by others of the same heap of things is in use, and so is all that hangs on it.
Nothing is collected here, since that would run code of the script's at another moment.
"""

from __future__ import annotations

import gc
import itertools
import sys
import types
import weakref
from collections import Counter

from ...looks import has, isinstance, vars
from ..core import internals
from . import walk_heap

_MOST = 20_000  # things that are looked at
_DEEP = 16
_FEW = 100  # things whose holders the garbage collector is asked for
_IN_USE = (
    types.FrameType,
    types.GeneratorType,
    types.CoroutineType,
    types.AsyncGeneratorType,
    types.ModuleType,
    type,
)
# `internals.use_count` of a tensor that nothing in C++ holds besides;
# how many references a parameter has to its gradient
_counts: list = []


def only(tensors: list, arrays: list, seen: object, ours: list) -> set:
    """The ids of those that only wait for the garbage collector. `seen`:
    the walk that did not reach them. `ours`: our own things, which may hold some;
    nothing else of ours but these two lists and the walk's heap may now."""
    if not _counts:
        _look_at_one_of_ours()
    owners = _holders_in_c(tensors, seen)
    lists = (tensors, arrays, owners, ours, seen.heap.objects)
    found = _holders(lists, seen)
    if found is None:
        return set()
    tensor = sys.modules["torch"].Tensor
    held, in_c = (
        _held(found, lists),
        Counter(id(part) for each in found if isinstance(each, tensor) for part in _in_c(each)),
    )
    of_ours = set(map(id, ours))
    live = [thing for thing in found if id(thing) not in of_ours and (
            # `found`, `thing`, the argument
            sys.getrefcount(thing) - held[id(thing)] > 3 + (_counts[1] if id(thing) in in_c else 0)
            or _asked_for(thing, seen, in_c[id(thing)]))]
    kept, among = set(), set(map(id, found))
    while live:
        thing = live.pop()
        if id(thing) not in kept:
            kept.add(id(thing))
            live += [part for part in _parts(thing) if id(part) in among]
    found.clear()  # nothing of what it found may hang on a list that waits for the garbage collector itself
    return among - kept


def _look_at_one_of_ours() -> None:
    torch = sys.modules["torch"]
    plain, owner = torch.empty(1), torch.empty(1, requires_grad=True)
    owner.grad = torch.empty(1)
    grad = owner.grad
    _counts[:] = internals.use_count(plain), sys.getrefcount(grad) - sys.getrefcount(plain)


def _holders_in_c(tensors: list, seen: object) -> list:
    """Tensors out of reach that have these as gradients, or are views of them:
    Python does not show that they hold them."""
    wanted = set(map(id, tensors))
    return [each for each in seen.heap.pick(walk_heap.TENSOR)
            if id(each) not in seen.seen and any(id(part) in wanted for part in _in_c(each))]


def _in_c(tensor: object) -> list:
    """What a tensor holds past Python's eyes."""
    found = [tensor.grad] if tensor.is_leaf and tensor.grad is not None else []
    return [*found, tensor._base] if tensor._is_view() else found


def _holders(lists: tuple, seen: object) -> list | None:
    """These tensors and arrays and all that holds them, as far as no path leads there; None: too many."""
    found: dict = {}
    level, fresh = [*lists[0], *lists[1], *lists[2]], []
    in_use = {
        id(vars(module)) for module in list(sys.modules.values()) if isinstance(module, types.ModuleType)
    }
    for _ in range(_DEEP):
        for thing in level:
            found[id(thing)] = thing
        if not level or len(found) > _MOST:
            break
        around = {id(found), id(level), id(fresh), *map(id, lists)}
        # no comprehension: its cells would lead to what is found, and hold it in a circle
        for r in referrers(level, seen.heap.objects):
            if (
                id(r) not in found
                and id(r) not in around
                and id(r) not in in_use
                and not isinstance(r, _IN_USE)
                and not seen.knows(r)
            ):
                fresh.append(r)
        level[:], fresh = fresh, []
    whole = None if level else list(found.values())
    found.clear()
    level.clear()
    return whole


def referrers(things: list, heap: list) -> list:
    """As `gc.get_referrers`, which compares each of these with each part of each object:
    for thousands that takes minutes."""
    if len(things) <= _FEW:
        return gc.get_referrers(*things)
    wanted = set(map(id, things))
    return [each for each in heap if not wanted.isdisjoint(map(id, gc.get_referents(each)))]


def _parts(thing: object) -> list:
    parts = gc.get_referents(thing)
    return parts + _in_c(thing) if isinstance(thing, sys.modules["torch"].Tensor) else parts


def _held(found: list, lists: tuple) -> Counter:
    """id -> how often it is held by the others, and by the lists."""
    known = set(map(id, found)).__contains__
    held = Counter(filter(known, map(id, itertools.chain.from_iterable(map(gc.get_referents, found)))))
    held.update(filter(known, map(id, itertools.chain.from_iterable(lists))))
    return held


def _asked_for(thing: object, seen: object, holds: int) -> bool:
    """Whether it can be come by in other ways:
    a weak reference, its own end, C++ (but for those who hold it there)."""
    if has(type(thing), "__del__") or any(seen.knows(each) for each in weakref.getweakrefs(thing)):
        return True
    if not isinstance(thing, sys.modules["torch"].Tensor):
        return False
    return _counts[0] is None or internals.use_count(thing) > _counts[0] + holds
