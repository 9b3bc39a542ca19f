"""Values that shields change, as trees of plain data: written into an image, built again from it. No pickle: a tree can only make builtin
containers, tensors of the image, and references to objects that the script itself has made again, or to functions and classes by name."""

from __future__ import annotations

import collections
import functools
import sys
import types

from . import caches, leaves, reopened
from .leaves import PLAIN
from .walk_kinds import ordinals

_KINDS = {list: "list", tuple: "tuple", dict: "dict", collections.OrderedDict: "ordered"}
_KINDS.update({set: "set", frozenset: "frozenset", collections.deque: "deque"})
_KINDS.update({collections.Counter: "counter", collections.defaultdict: "defaultdict"})
_MAKE = {word: kind for kind, word in _KINDS.items()}
_DICTS = (dict, collections.OrderedDict, collections.Counter, collections.defaultdict)
CACHE = functools._lru_cache_wrapper
PAIRS = frozenset(_KINDS[kind] for kind in _DICTS)  # words of trees that hold pairs


class CannotBuild(Exception):
    """A tree names something that this life does not have."""


def pack(walk, thing, path: str) -> tuple:
    """The tree of a value that the walk reached at `path`."""
    kind = type(thing)
    if kind in PLAIN:
        return ("value", thing)
    if walk.seen.get(id(thing)) in (path, None) and (how := reopened.told(thing)) is not None:
        return ("opened", how)
    if path in walk.tensors or path in walk.arrays:
        return ("memory", path)
    if walk.seen.get(id(thing)) not in (path, None):
        return ("same", walk.seen[id(thing)])
    if kind in _DICTS:
        pairs = []
        for n, (key, value) in enumerate(leaves.items(thing)):
            odd = type(key) not in PLAIN or (type(key) is int and key > 0xFFFFFFFF)
            where = f"{path}[#{n}]" if odd else f"{path}[{key!r}]"
            pairs.append((pack(walk, key, where + "<key>") if odd else ("value", key), pack(walk, value, where)))
        return (_KINDS[kind], pairs)
    if kind in (list, tuple, collections.deque):
        return (_KINDS[kind], [pack(walk, value, f"{path}[{n}]") for n, value in enumerate(thing)], getattr(thing, "maxlen", None))
    if kind in (set, frozenset) and all(type(v) in PLAIN for v in thing):
        return (_KINDS[kind], [("value", v) for v in thing])
    if kind is CACHE and (known := caches.entries(thing)) is not None:
        return ("cache", [_entry(walk, entry, f"{path}[#{n}]") for n, entry in enumerate(known)], tuple(thing.cache_info()))
    return _named(thing) or ("same", path)


def _entry(walk, entry: tuple, where: str) -> tuple:
    """Of a cache: the result, the arguments, the names of those at the end that were given by name."""
    args, kwargs, result = entry
    values = [*args, *kwargs.values()]
    trees = [pack(walk, result, where), *[pack(walk, value, f"{where}<{n}>") for n, value in enumerate(values)]]
    return ("entry", trees, list(kwargs))


def _named(thing) -> tuple | None:
    """The tree of a function or class that stands in its module under its own name, where any life finds it."""
    if not isinstance(thing, (types.FunctionType, types.BuiltinFunctionType, type)):
        return None
    module, name = thing.__module__, thing.__qualname__
    home = getattr(sys.modules.get(module), "__dict__", {}) if type(module) is str else {}
    return ("named", module, name) if home.get(name) is thing else None


def build(tree: tuple, find, now=None):
    """The value of a tree; containers that exist (`now`) are filled in place. `find(path)` gives tensors, arrays and objects, or raises
    CannotBuild."""
    word = tree[0]
    if word == "value":
        return tree[1]
    if word in ("memory", "same"):
        return find(tree[1])
    if word == "named":
        found = getattr(sys.modules.get(tree[1]), tree[2], None)
        if found is None:
            raise CannotBuild(f"{tree[1]}.{tree[2]}")
        return found
    if word == "opened":
        return _opened(tree[1], now)
    if word == "cache":
        if type(now) is not CACHE or caches.entries(now) is None:
            raise CannotBuild("what an lru_cache keeps")
        caches.fill(now, [_call(entry, find) for entry in tree[1]], tree[2])
        return now
    kind = _MAKE[word]
    if kind in _DICTS:
        if kind is collections.defaultdict and type(now) is not kind:
            raise CannotBuild("a defaultdict")  # what it makes by default stands in no image
        old = now if type(now) is kind else kind()
        pairs = []
        for key, value in tree[1]:
            key = build(key, find)  # noqa: PLW2901
            if type(key) is str:
                key = sys.intern(key)  # noqa: PLW2901  # one object for one name, as torch has it: pickles tell the difference
            pairs.append((key, build(value, find, old.get(key) if type(key) in PLAIN else None)))
        old.clear()
        (collections.OrderedDict if kind is collections.OrderedDict else dict).update(old, pairs)  # a Counter's own would count them
        return old
    held = list(now) if type(now) is kind else []
    values = [build(value, find, held[n] if n < len(held) and kind not in (set, frozenset) else None) for n, value in enumerate(tree[1])]
    if type(now) is not kind or kind in (tuple, frozenset):
        return collections.deque(values, tree[2]) if kind is collections.deque else kind(values)
    if kind is set:
        if not leaves.refill(now, values):
            raise CannotBuild("a set in its order")
        return now
    now.clear()
    now.extend(values)
    return now


def _opened(how: tuple, now):
    try:
        return now if reopened.told(now) == how else reopened.open_again(how)
    except (OSError, ValueError) as e:
        raise CannotBuild(f"a file ({e})") from e


def _call(entry: tuple, find) -> tuple:
    """(args, kwargs, result) of an entry of a cache."""
    result, *values = [build(tree, find) for tree in entry[1]]
    named = len(values) - len(entry[2])
    return tuple(values[:named]), dict(zip(entry[2], values[named:])), result  # noqa: B905


def pack_optimizer(walk, optimizer, path: str) -> list:
    """The state of an optimizer by the place of each parameter: [(place, or the key itself, tree)]."""
    places = ordinals(optimizer)
    found = []
    for key, value in dict.items(optimizer.state):
        place = places.get(id(key))
        where = f"{path}.state[{key!r}]" if place is None else f"{path}.state[{place}]"
        found.append((("key", key) if place is None else ("place", place), pack(walk, value, where)))
    return found  # in the order of the dictionary: a checkpoint that the script writes lists them so


def build_optimizer(optimizer, entries: list, find) -> None:
    parameters = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameters.setdefault(id(parameter), parameter)
    by_place = list(parameters.values())
    state = {}
    for (how, key), tree in entries:
        if how == "place" and key >= len(by_place):
            raise CannotBuild("the optimizer has fewer parameters")
        owner = by_place[key] if how == "place" else key
        state[owner] = build(tree, find, optimizer.state.get(owner))
    optimizer.state.clear()
    optimizer.state.update(state)
