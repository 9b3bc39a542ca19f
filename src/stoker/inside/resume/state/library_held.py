"""What of the script's own only a library or C++ holds:
a function in a registry of torch's, an object at exit, a hook without a name.
It may count as it is called, within what a ghost skips, so it is gone through as what the script names.
"""

from __future__ import annotations

import itertools
import sys
import types
import weakref
from collections import Counter, OrderedDict

from ...looks import isinstance, vars
from ..core import leaves
from . import reachability, stack_values, walk_garbage, walk_heap

_MOST = 5000  # things that are looked at
_DEEP = 8
_first: dict = {}  # path -> weak reference to what was there when set-up ended, in each life
_last: dict = {}  # the same at the last look


def add(walk) -> None:
    """Walk on from those that are in use; what only waits for the garbage collector is none of them.
    After all other ways."""
    found = _unreached(walk)
    if len(found) > _MOST:
        walk.refusals.append(
            f"{len(found):,} objects of the script that only a library holds (too many to inspect)"
        )
        return
    if found:
        waiting = walk_garbage.only(found, [], walk, reachability.ours())
        found = [thing for thing in found if id(thing) not in waiting]
    if found:
        of_graphs = _of_graphs(walk, found)
        found = [thing for thing in found if id(thing) not in of_graphs]
    _last.clear()
    for path, thing in _named(walk, found):
        try:
            _last[path] = weakref.ref(thing)
        except TypeError:
            pass
        _go_on(walk, path, thing)


def add_known(walk) -> None:
    """Without a look at all objects: what was found the last time."""
    for path, ref in list(_last.items()):
        thing = ref()
        if thing is not None:
            _go_on(walk, path, thing)


def remember() -> None:
    """Set-up has ended: these have their names from now on."""
    _first.update(_last)


def forget() -> None:
    _first.clear()
    _last.clear()


def _go_on(walk, path: str, thing) -> None:
    if id(thing) not in walk.seen:  # an earlier one may have led to it
        walk.strict.append((thing, path))
        walk.add(thing, path)
        walk.drain()


def _unreached(walk) -> list:
    """Functions and objects of the script's that no path leads to.
    Methods belong to their class, and what loaders hold to them."""
    homes = {id(vars(module)) for _, module in leaves.user_modules()}
    things = [f for f in walk.heap.pick(walk_heap.FUNCTION) if id(f.__globals__) in homes]
    things = [
        f for f in things if id(f) not in walk.seen and "." not in f.__qualname__.rpartition("<locals>.")[2]
    ]
    for code in (walk_heap.OWN, walk_heap.KEEPER):
        own = walk.heap.pick(code)
        things += itertools.compress(own, [id(thing) not in walk.seen for thing in own])
    return [thing for thing in things if id(thing) not in walk.inside and _holds(thing)]


def _holds(thing) -> bool:
    """Whether it has anything of its own: a function that has not knows its module only,
    which is gone through."""
    if type(thing) is types.FunctionType:
        return bool(thing.__closure__ or thing.__defaults__ or thing.__kwdefaults__ or thing.__dict__)
    return bool(
        leaves.attributes(thing) or leaves.slots(type(thing)) or leaves.solid(type(thing)) is not object
    )


def _of_graphs(walk, things: list) -> set:
    """The ids of those, new since set-up, that hang on a graph:
    hooks of tensors that a forward has made, and what a Function keeps for its backward.
    The graph of a loss that the script still has a name for is used up, and none of a ghost's."""
    old = {id(ref()) for ref in _first.values()}
    ids = {id(thing) for thing in things} - old
    holders = walk_garbage.referrers(things, walk.heap.objects)
    hooks = [
        each
        for each in holders
        if type(each) is OrderedDict and each and all(type(key) is int for key in each)
    ]
    nodes = [
        each
        for each in walk.heap.objects
        if isinstance(each, sys.modules["torch"]._C._FunctionBase) and id(each) not in walk.seen
    ]
    level, found = [*nodes, *(each for each in hooks if id(each) not in walk.seen)], set()
    for _ in range(_DEEP):
        level = (
            [
                part
                for part in leaves.referents(*level)
                if id(part) not in found
                and id(part) not in walk.seen
                and not isinstance(part, (type, types.ModuleType))
            ]
            if level
            else []
        )
        found.update(map(id, level))
    return found & ids


def _named(walk, things: list) -> list:
    """[(path, thing)]; those of set-up keep their names,
    which is how two that look alike are told apart later."""
    known = {id(ref()): path for path, ref in _first.items()}
    named = [(known[id(thing)], thing) for thing in things if id(thing) in known]
    taken, told = (
        set(_first),
        [(_name(thing), _signature(walk, thing), thing) for thing in things if id(thing) not in known],
    )
    looks = Counter(each[:2] for each in told)
    for name, signature, thing in sorted(told, key=lambda each: each[:2]):
        if looks[name, signature] > 1:
            walk.refusals.append(
                f"several objects {name} that Stoker cannot distinguish, because only a library refers to "
                "them"
            )
        path = next(path for n in itertools.count() if (path := f"U:{name}#{n}") not in taken)
        taken.add(path)
        named.append((path, thing))
    return named


def _name(thing) -> str:
    of_function = type(thing) is types.FunctionType
    return (
        f"{thing.__module__}.{thing.__qualname__}:{thing.__code__.co_firstlineno}"
        if of_function
        else leaves.name_of(type(thing))
    )


def _signature(walk, thing) -> str:
    if type(thing) is not types.FunctionType:
        return stack_values.signature(walk, thing)
    parts = [*map(_content, thing.__closure__ or ()), thing.__defaults__]
    return str([leaves.code_sum(thing.__code__), *[stack_values.signature(walk, part) for part in parts]])


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None
