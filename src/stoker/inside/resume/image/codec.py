"""Values that shields change, as trees of plain data: written into an image, built again from it.
No pickle: a tree can only make builtin containers, tensors of the image, objects of Python's classes without
a call of their code, and references to what the script itself has made again,
or to functions and classes by name."""

from __future__ import annotations

import array
import collections
import enum
import sys
import threading
import types
import weakref

from ...looks import attributes, isinstance, vars
from ..core import caches, leaves
from ..core.leaves import PLAIN
from ..state import generators, reopened
from ..state.walk_kinds import find as handler_of
from ..state.walk_kinds import of_instance, ordinals

DEEP = 100  # objects that hold each other in a row, and are made again: five calls each
_KINDS = {list: "list", tuple: "tuple", dict: "dict", collections.OrderedDict: "ordered"}
_KINDS.update({set: "set", frozenset: "frozenset", collections.deque: "deque"})
_KINDS.update({collections.Counter: "counter", collections.defaultdict: "defaultdict"})
_MAKE = {word: kind for kind, word in _KINDS.items()}
_DICTS = (dict, collections.OrderedDict, collections.Counter, collections.defaultdict)
FILLED = frozenset((*_KINDS, caches.CACHE, array.array, bytearray))  # in place

there: dict = {}  # hash of the path of all that was there when set-up ended -> its id


class CannotBuild(Exception):
    """A tree names something that this life does not have."""


def pack(walk, thing, path: str) -> tuple:
    """The tree of a value that the walk reached at `path`."""
    kind = type(thing)
    if kind in PLAIN:
        return ("value", thing)
    if walk.seen.get(id(thing)) in (path, None) and (how := reopened.told(thing)) is not None:
        return ("opened", how, path)
    if kind is tuple and PLAIN.issuperset(map(type, thing)):  # which one of equal ones it is shows nowhere
        return ("tuple", [("value", value) for value in thing], None)
    if path in walk.tensors or path in walk.arrays:
        return ("memory", path)
    if (
        isinstance(thing, getattr(sys.modules.get("numpy"), "generic", ()))
        and thing.dtype.isbuiltin == 1
        and not thing.dtype.hasobject
    ):
        return ("scalar", thing.dtype.str, thing.tobytes())
    if _never_changes(kind) and (made := _made(thing)) is not None:
        return made
    if walk.seen.get(id(thing)) not in (path, None):
        return ("same", walk.seen[id(thing)])
    if kind is weakref.ref and thing.__callback__ is None and walk.seen.get(id(thing())):
        return ("weak", walk.seen[id(thing())])
    if kind is threading.local:
        return ("local", [pack(walk, leaves.of_this_thread(thing), f"{path}.__dict__")])
    if kind is array.array or kind is bytearray:
        return ("numbers", getattr(thing, "typecode", ""), bytes(thing))
    if kind in _DICTS:
        pairs = []
        for n, (key, value) in enumerate(leaves.items(thing)):
            odd = type(key) not in PLAIN or (type(key) is int and key > 0xFFFFFFFF)
            where = f"{path}[#{n}]" if odd else f"{path}[{key!r}]"
            pairs.append(
                (pack(walk, key, where + "<key>") if odd else ("value", key), pack(walk, value, where))
            )
        return (_KINDS[kind], pairs, _factory(thing))
    if kind in (list, tuple, collections.deque):
        return (
            _KINDS[kind],
            [pack(walk, value, f"{path}[{n}]") for n, value in enumerate(thing)],
            getattr(thing, "maxlen", None),
        )
    if isinstance(thing, tuple) and "_fields" in vars(kind) and _named(kind):  # a namedtuple
        return (
            "record",
            [pack(walk, value, f"{path}[{n}]") for n, value in enumerate(thing)],
            kind.__module__,
            kind.__qualname__,
        )
    if kind is set and all(type(v) in PLAIN for v in thing):
        return (_KINDS[kind], [("value", v) for v in thing], leaves.table_of(thing))
    if kind is set and leaves.bulk(thing):  # tuples of plain values among them
        return (
            _KINDS[kind],
            [pack(walk, v, path) if type(v) is tuple else ("value", v) for v in thing],
            None,
        )
    if kind is frozenset and all(type(v) in PLAIN for v in thing):
        return (_KINDS[kind], [("value", v) for v in thing])
    if kind is caches.CACHE and (known := caches.entries(thing)) is not None:
        return (
            "cache",
            [_entry(walk, entry, f"{path}[#{n}]") for n, entry in enumerate(known)],
            tuple(thing.cache_info()),
        )
    return _named(thing) or _object(walk, thing, path) or ("same", path)


def _object(walk, thing, path: str) -> tuple | None:
    """The tree of an object that is nothing but its class and its attributes,
    if it was not there when set-up ended."""
    kind = type(thing)
    if (
        there.get(hash(path)) == id(thing)
        or handler_of(kind) is not of_instance
        or isinstance(thing, sys.modules["torch"].nn.Module)
    ):
        return None
    known = _named(kind) if leaves.made_by_python(kind) and leaves.solid(kind) is object else None
    if known is None or path.count(".") > DEEP:
        return None
    held = [(name, value, False) for name, value in (leaves.attributes(thing) or {}).items()]
    held += [
        (name, descriptor.__get__(thing), True)
        for name, descriptor in leaves.slots(kind)
        if leaves.is_filled(descriptor, thing)
    ]
    trees = [pack(walk, value, f"{path}.{name}") for name, value, _ in held]
    if any(is_lost(walk, tree, f"{path}.{name}") for (name, _, _), tree in zip(held, trees)):  # noqa: B905
        return None
    return ("object", trees, path, known[1:], [(name, slot) for name, _, slot in held])


def is_lost(walk, tree: tuple, path: str) -> bool:
    """Whether what was found at `path`, and has no other, was made in a shield, and is nothing that a later
    life could make."""
    return tree == ("same", path) and hash(path) not in there and (
        path not in walk.rngs or generators.maker(generators.state(walk.rngs[path])) is None)


def place_of(tree: tuple, now):
    """Where such an object is to be: the one that this life has there, or a new one,
    still without attributes."""
    kind = _by_name(*tree[3])
    return now if type(now) is kind else object.__new__(kind)


def fill(thing, tree: tuple, find) -> None:
    """Give it the attributes that the tree tells of."""
    attributes, values = leaves.attributes(thing), {}
    attributes = {} if attributes is None else attributes  # of one with slots only
    for (name, _), part in zip(tree[4], tree[1]):  # noqa: B905
        values[name] = build(part, find, attributes.get(name))
    attributes.clear()
    attributes.update((name, values[name]) for name, slot in tree[4] if not slot)
    for name, descriptor in leaves.slots(type(thing)):
        if name in values:
            descriptor.__set__(thing, values[name])
        elif leaves.is_filled(descriptor, thing):
            descriptor.__delete__(thing)


def _factory(thing) -> tuple | None:
    """What a defaultdict makes by default; None where no life would find it."""
    factory = getattr(thing, "default_factory", None)
    return ("value", None) if factory is None else _named(factory)


def _entry(walk, entry: tuple, where: str) -> tuple:
    """Of a cache: the result, the arguments, the names of those at the end that were given by name."""
    args, kwargs, result = entry
    values = [*args, *kwargs.values()]
    trees = [
        pack(walk, result, where),
        *[pack(walk, value, f"{where}<{n}>") for n, value in enumerate(values)],
    ]
    return ("entry", trees, list(kwargs))


def _made(thing) -> tuple | None:
    """The tree of an object that never changes:
    a member of its class or module, or made of plain values as its `__reduce__` says."""
    kind = type(thing)
    if isinstance(kind, enum.EnumMeta):
        # no flags together, which no class has
        known = _named(kind) and kind._member_map_.get(thing._name_) is thing
        return ("named", kind.__module__, f"{kind.__qualname__}.{thing._name_}") if known else None
    if (
        kind.__module__ == "torch"
        and getattr(sys.modules["torch"], str(thing).rpartition(".")[2], None) is thing
    ):
        return ("named", "torch", str(thing).rpartition(".")[2])
    try:
        maker, args, *more = thing.__reduce__()
    except TypeError:
        return None
    plain = PLAIN.issuperset(type(part) for arg in args for part in (arg if type(arg) is tuple else (arg,)))
    return (
        ("made", *_named(kind)[1:], args) if maker is kind and not more and plain and _named(kind) else None
    )


def _never_changes(kind: type) -> bool:
    return leaves.is_value(kind) or leaves.name_of(kind) == "torch.Size"


def _named(thing) -> tuple | None:
    """The tree of a function or class that stands in its module under its own name,
    where any life finds it."""
    if not isinstance(thing, (types.FunctionType, types.BuiltinFunctionType, type)):
        return None
    module, name = thing.__module__, thing.__qualname__
    home = attributes(sys.modules.get(module)) if type(module) is str else {}
    return ("named", module, name) if home.get(name) is thing else None


def build(tree: tuple, find, now=None):
    """The value of a tree; containers that exist (`now`) are filled in place.
    `find(path)` gives tensors, arrays and objects, or raises
    CannotBuild."""
    word = tree[0]
    if word in _LEAVES:
        return _LEAVES[word](tree, find)
    if word in _PLACES:
        return _PLACES[word](tree, find, now)
    return _elements(tree, find, now)


def _made_again(tree: tuple, _find):
    kind = _by_name(*tree[1:3])
    if not _never_changes(kind):
        raise CannotBuild(f"{tree[1]}.{tree[2]}")
    return kind(*tree[3])


def _numbers(tree: tuple, _find, now):
    """An array of the standard library, or a bytearray."""
    _, code, raw = tree
    made = array.array(code, raw) if code else bytearray(raw)
    if type(now) is not type(made) or (code and now.typecode != code):
        return made
    try:
        now[:] = made
    except BufferError as e:  # of another length, while something looks at its memory
        raise CannotBuild("memory that another object shares") from e
    return now


def _local(tree: tuple, find, now):
    """With the attributes of the thread that trains; no other one has come by it in this life."""
    made = now if type(now) is threading.local else threading.local()
    build(tree[1][0], find, leaves.of_this_thread(made))
    return made


def _cache(tree: tuple, find, now):
    known = caches.entries(now) if type(now) is caches.CACHE else None
    if known is None:
        raise CannotBuild("the content of an lru_cache")
    held = {_asked(args, kwargs): result for args, kwargs, result in known}
    held.pop(None, None)
    caches.fill(now, [_call(entry, find, held) for entry in tree[1]], tree[2])
    return now


def _pairs(tree: tuple, find, now):
    kind = _MAKE[tree[0]]
    old = now if type(now) is kind else kind()
    if kind is collections.defaultdict and old.default_factory is None:  # new, or of a ghost
        if tree[2] is None:
            raise CannotBuild("a defaultdict")
        old.default_factory = build(tree[2], find)
    pairs = []
    for key_tree, value in tree[1]:
        key = build(key_tree, find)
        if type(key) is str:
            key = sys.intern(key)  # one object for one name, as torch has it: pickles tell the difference
        pairs.append((key, build(value, find, old.get(key) if _is_plain(key) else None)))
    old.clear()
    # a Counter's own would count them
    (collections.OrderedDict if kind is collections.OrderedDict else dict).update(old, pairs)
    return old


def _set(tree: tuple, find, now):
    place, values = now if type(now) is set else set(), [build(value, find) for value in tree[1]]
    if not leaves.refill(place, values, tree[2]) or (not leaves.all_plain(values) and list(place) != values):
        raise CannotBuild("the order of a set")
    return place


def _elements(tree: tuple, find, now):
    """A list or a deque, in place; a tuple or a frozenset, anew."""
    kind = _MAKE[tree[0]]
    held = list(now) if type(now) is kind and kind is not frozenset else []
    values = [build(value, find, held[n] if n < len(held) else None) for n, value in enumerate(tree[1])]
    if type(now) is not kind or kind in (tuple, frozenset):
        return collections.deque(values, tree[2]) if kind is collections.deque else kind(values)
    now.clear()
    now.extend(values)
    return now


def parts(tree: tuple) -> list:
    """The trees within a tree."""
    word = tree[0]
    if _PLACES.get(word) is _pairs:
        return [part for pair in tree[1] for part in pair]
    return [] if word in _LEAVES or word in ("numbers", "absent") else tree[1]


def _by_name(module: str, names: str):
    found = sys.modules.get(module)
    for name in names.split("."):
        found = getattr(found, name, None)
    if found is None:
        raise CannotBuild(f"{module}.{names}")
    return found


def open_again(how: tuple, now, known: dict):
    """The file that `reopened.told` told so; what this life has there if it is the same. `known`:
    of h5py, those that were opened."""
    try:
        return now if reopened.told(now) == how else reopened.open_again(how, known)
    except (OSError, ValueError) as e:
        raise CannotBuild(f"a file ({e})") from e


def _call(entry: tuple, find, now: dict) -> tuple:
    """(args, kwargs, result) of an entry of a cache; `now`: results that this life has, by what was asked."""
    values = [build(tree, find) for tree in entry[1][1:]]
    named = len(values) - len(entry[2])
    asked = tuple(values[:named]), dict(zip(entry[2], values[named:]))  # noqa: B905
    return *asked, build(entry[1][0], find, now.get(_asked(*asked)))


def _asked(args: tuple, kwargs: dict) -> object:
    values = (*args, *kwargs.values())
    return (values, *kwargs, *map(type, values)) if all(map(_is_plain, values)) else None


def _is_plain(key) -> bool:
    """Whether it may be looked up without code of the script's."""
    return (
        type(key) in PLAIN
        or isinstance(key, (type, enum.Enum))
        or (type(key) is tuple and all(map(_is_plain, key)))
    )


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
            raise CannotBuild("the state of an optimizer that now has fewer parameters")
        owner = by_place[key] if how == "place" else key
        state[owner] = build(tree, find, optimizer.state.get(owner))
    optimizer.state.clear()
    optimizer.state.update(state)


_LEAVES = {  # words of trees without parts -> what makes the value, of (tree, find)
    "value": lambda tree, _: tree[1],
    "memory": lambda tree, find: find(tree[1]),
    "same": lambda tree, find: find(tree[1]),
    "opened": lambda tree, find: find(tree[2]),
    "weak": lambda tree, find: weakref.ref(find(tree[1])),
    "named": lambda tree, _: _by_name(*tree[1:]),
    "made": _made_again,
    "scalar": lambda tree, _: sys.modules["numpy"].frombuffer(tree[2], tree[1])[0],
}
_PLACES = {  # and of (tree, find, what this life has there)
    "numbers": _numbers,
    "cache": _cache,
    "local": _local,
    "object": lambda tree, find, _: find(tree[2]),
    "record": lambda tree, find, _: tuple.__new__(
        _by_name(*tree[2:]), [build(value, find) for value in tree[1]]
    ),
    "set": _set,
    **{_KINDS[kind]: _pairs for kind in _DICTS},
}


class Stored:
    """What the parts handed in when the image was taken, by number."""

    def __init__(self, work):
        self._work = work

    def get(self, number: int):
        torch = sys.modules["torch"]
        kind, dtype, shape, source = self._work.meta["extra"][number]
        raw = bytearray(self._work.bytes_of(source))
        if kind == "array":
            import numpy
            return numpy.frombuffer(raw, dtype=dtype).reshape(shape)
        flat = torch.frombuffer(raw, dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)
        return flat.view(dtype_of(dtype)).reshape(shape)


def dtype_of(name: str):
    return getattr(sys.modules["torch"], name.rpartition(".")[2])
