"""What a data set holds, in a few numbers: whether the script has changed it between two epochs.

Its attributes, those of what it holds,
and the plain values that the code of its `__getitem__` takes from its module.
"""

from __future__ import annotations

import sys
import types
import zlib

# levels; entries looked at in one container; those of a list that is hashed whole
DEEP, ITEMS, WHOLE = 4, 48, 2_000_000
BYTES = 4 << 20  # an array up to this size is read whole, a larger one in some places
_PLAIN = (int, float, str, bytes, bool, type(None), complex)
_CODE = (type, types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType)
_READS = ("__getitem__", "__getitems__", "__call__", "forward")


def of(data: object) -> dict:
    """Path -> a value that is equal while nothing changes."""
    found: dict = {}
    _look(data, "", found, 0, (set(), None))
    return found


def walk(data: object, visit: object) -> None:
    """Show everything in it to `visit`."""
    _look(data, "", {}, 0, (set(), visit))


def difference(one: dict, other: dict) -> str:
    """The first path that differs; the longest of those that begin alike says most."""
    paths = [path for path in dict.fromkeys((*one, *other)) if one.get(path, path) != other.get(path, path)]
    return max(paths, key=len, default="nothing") or "all of it"


def stamp(data: object) -> tuple:
    """Much cheaper, and sees less: which objects its attributes are. For every batch."""
    found: tuple = ()
    for _ in range(DEEP):
        if not hasattr(data, "__dict__"):
            break
        found += tuple(map(id, data.__dict__.values()))
        data = data.__dict__.get("dataset")
    return found


def _look(thing: object, path: str, found: dict, deep: int, how: tuple) -> None:
    kind, (seen, visit) = type(thing), how
    if kind in _PLAIN:
        found[path] = (
            thing if not isinstance(thing, (str, bytes)) or len(thing) < 256 else (len(thing), hash(thing))
        )
        return
    if id(thing) in seen or isinstance(thing, _CODE):
        found[path] = id(thing)
        return
    seen.add(id(thing))
    if visit is not None:
        visit(thing)
    value = _array(thing)
    if value is not None:
        found[path] = value
        return
    if kind in (list, tuple):
        found[path] = id(thing), len(thing), _hash(thing)
        step = max(1, len(thing) // ITEMS)
        inside = [(f"{path}[{n}]", thing[n]) for n in range(0, len(thing), step)]
    elif kind is dict:
        found[path] = id(thing), len(thing)
        keys = list(thing)
        inside = [(f"{path}[{key!r:.40}]", thing[key]) for key in keys[:: max(1, len(keys) // ITEMS)]]
    elif isinstance(thing, (set, frozenset)):
        found[path] = id(thing), len(thing)
        return
    else:
        found[path] = kind.__name__, id(thing)
        inside = [
            (f"{path}.{name}" if path else name, value)
            for name, value in list(getattr(thing, "__dict__", {}).items())
        ]
        inside += [(f"{path}~{name}", value) for name, value in _globals(kind)]
    if deep < DEEP:
        for name, value in inside:
            _look(value, name, found, deep + 1, how)


def words_of(data: object) -> set:
    """The names that the code reads which makes a sample:
    of its class, of functions of its module, of what it holds."""
    found: set = set()
    things: list = []
    walk(data, things.append)
    for kind in {type(each) for each in things}:
        for name in _READS:
            method = next((each.__dict__[name] for each in kind.__mro__ if name in each.__dict__), None)
            if isinstance(method, types.FunctionType) and not (method.__module__ or "").startswith("torch."):
                _words(method, kind, found, 0)
    return found


def _words(function: types.FunctionType, kind: type, found: set, deep: int) -> None:
    found.update(function.__code__.co_names)
    for word in function.__code__.co_names if deep < 3 else ():
        inner = function.__globals__.get(word) or getattr(kind, word, None)
        if (
            isinstance(inner, types.FunctionType)
            and inner.__module__ == function.__module__
            and inner is not function
        ):
            _words(inner, kind, found, deep + 1)


def _globals(kind: type) -> list:
    """The values, not code, that its reading takes from its module by name."""
    found = {}
    for name in _READS:
        method = next((each.__dict__[name] for each in kind.__mro__ if name in each.__dict__), None)
        if not isinstance(method, types.FunctionType) or (method.__module__ or "").startswith("torch."):
            continue
        for word in method.__code__.co_names:
            value = method.__globals__.get(word)
            if isinstance(value, (*_PLAIN, list, dict, set)) and value is not None:
                found[word] = value
    return list(found.items())


def _hash(thing: object) -> int:
    try:
        return hash(tuple(thing)) if len(thing) <= WHOLE else 0
    except TypeError:  # of things that change
        return 0


def _array(thing: object) -> object:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(thing, torch.Tensor):
        try:
            return "tensor", thing.data_ptr(), thing._version, tuple(thing.shape)
        except Exception:  # one without storage
            return "tensor", id(thing)
    if numpy is not None and isinstance(thing, numpy.ndarray):
        if thing.dtype.hasobject:
            return "array", id(thing), thing.shape
        part = thing
        if thing.nbytes > BYTES:
            part = thing.reshape(-1)[:: max(1, thing.size // 1024)] if thing.flags.c_contiguous else thing[:8]
        return "array", id(thing), thing.shape, zlib.crc32(numpy.ascontiguousarray(part).tobytes())
    return None
