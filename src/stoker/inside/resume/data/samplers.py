"""The state of a sampler (and of the generator it draws from), as a value that can be kept,
compared and put back in place.

A sampler's `__iter__` may shuffle its own list, count epochs or draw from a generator of its own.
As a ghost it does not run, so what it would have changed is put back from here.
"""

from __future__ import annotations

import marshal
import sys
import types
import zlib

from ...looks import isinstance
from ..core import internals, leaves
from ..core.leaves import PLAIN

_BY_OWNER = ("=", "data", "set", "scalar")  # of states: the owner puts the value in its place
_NESTS = frozenset((list, tuple, dict, set, frozenset))
_CODE = (type, types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType)
DEEP = 12


class Unreadable(Exception):
    """A sampler holds something whose state cannot be kept."""


def capture(sampler: object, generator: object, dataset: object) -> tuple:
    """The state of both, marshal-able. The data set is not looked into. Raises Unreadable."""
    seen = {id(dataset): ("data set",)}
    return (_take(sampler, "sampler", seen, 0), _take(generator, "generator", seen, 0))


def digest(state: tuple) -> int:
    return zlib.crc32(marshal.dumps(state, 2))


def restore(state: tuple, sampler: object, generator: object) -> None:
    """Make both what they were; containers and arrays keep their identity.
    Raises Unreadable where that cannot be done."""
    _put(sampler, state[0], "sampler")
    _put(generator, state[1], "generator")


def _take(thing: object, path: str, seen: dict, deep: int) -> tuple:
    kind = type(thing)
    if kind in PLAIN:
        return ("=", thing)
    if isinstance(thing, getattr(sys.modules.get("numpy"), "generic", ())) and not thing.dtype.hasobject:
        return ("scalar", thing.dtype.str, thing.tobytes())
    if id(thing) in seen:
        return seen[id(thing)]
    seen[id(thing)] = ("again", len(seen))
    if _is_dataset(kind):
        return ("data set",)
    if deep > DEEP:
        raise Unreadable(f"{path} is nested too deeply")
    if kind is set and PLAIN.issuperset(map(type, thing)):
        return ("set", list(thing), leaves.table_of(thing))
    if kind in _NESTS and _pure(thing, 0):
        return ("data", thing if kind in (tuple, frozenset) else marshal.loads(marshal.dumps(thing, 2)))
    if isinstance(thing, _CODE) or kind is range or leaves.is_value(kind):
        return (
            "code",
            getattr(thing, "__qualname__", None) or (repr(thing) if kind is range else kind.__name__),
        )
    state = generator_state(thing)
    if state is not None:
        return state
    memory = _memory(thing)
    if memory is not None:
        return memory
    if kind in (list, tuple):
        return (kind.__name__, [_take(v, f"{path}[{n}]", seen, deep + 1) for n, v in enumerate(thing)])
    if isinstance(thing, dict):
        items = [
            (_take(k, f"{path} key", seen, deep + 1), _take(v, f"{path}[{k!r}]", seen, deep + 1))
            for k, v in dict.items(thing)
        ]
        return ("dict", items, _attributes(thing, path, seen, deep))
    if leaves.solid(kind) is object:
        return ("object", leaves.name_of(kind), _attributes(thing, path, seen, deep))
    raise Unreadable(f"{path} holds a {leaves.name_of(kind)}")


def _attributes(thing: object, path: str, seen: dict, deep: int) -> list:
    found = list((leaves.attributes(thing) or {}).items())
    # torch's own ask a data set how long it is; a list could not be known again
    if type(thing).__module__ == "torch.utils.data.sampler":
        seen.setdefault(id(thing.__dict__.get("data_source")), ("data set",))
    for name, descriptor in leaves.slots(type(thing)):
        try:
            found.append((name, descriptor.__get__(thing)))
        except AttributeError:
            pass
    return [(str(name), _take(value, f"{path}.{name}", seen, deep + 1)) for name, value in found]


def _put(thing: object, state: tuple, path: str) -> None:
    kind = state[0]
    if kind in (*_BY_OWNER, "code", "again", "data set"):
        return  # the owner puts it
    if kind in _GENERATORS:
        set_generator(thing, state)
    elif kind == "array":
        _check(
            thing is not None
            and str(getattr(thing, "dtype", "")) == state[1]
            and tuple(thing.shape) == state[2],
            path,
        )
        _write(thing, state[3])
    elif kind in ("list", "tuple"):
        _check(type(thing).__name__ == kind and len(thing) == len(state[1]), path)
        for n, (value, inner) in enumerate(zip(thing, state[1])):  # noqa: B905
            if inner[0] in _BY_OWNER and kind == "list":
                thing[n] = _changed(value, inner)
            else:
                _put(value, inner, f"{path}[{n}]")
    elif kind == "dict":
        _check([_take(k, path, {}, 0) for k in thing] == [k for k, _ in state[1]], path)
        for key, (_, inner) in zip(list(thing), state[1]):  # noqa: B905
            if inner[0] in _BY_OWNER:
                thing[key] = _changed(thing[key], inner)
            else:
                _put(thing[key], inner, f"{path}[{key!r}]")
        _put_attributes(thing, state[2], path)
    else:
        _check(kind == "object" and leaves.name_of(type(thing)) == state[1], path)
        _put_attributes(thing, state[2], path)


def _put_attributes(thing: object, attributes: list, path: str) -> None:
    own = leaves.attributes(thing) or {}
    for name in [n for n in own if n not in dict(attributes)]:
        del own[name]
    slots = dict(leaves.slots(type(thing)))
    for name, inner in attributes:
        where = f"{path}.{name}"
        there = own[name] if name in own else slots[name].__get__(thing) if name in slots else None
        if inner[0] in _BY_OWNER:
            value = _changed(there, inner)
            if name in slots and name not in own:
                slots[name].__set__(thing, value)
            else:
                own[name] = value
        else:
            _check(name in own or name in slots, where)
            _put(there, inner, where)


def _changed(there: object, state: tuple) -> object:
    """What belongs there: a list, dict or set keeps its identity. Raises Unreadable:
    a set that is gone through in another order."""
    if state[0] == "scalar":
        return sys.modules["numpy"].frombuffer(state[2], state[1])[0]
    value = state[1]
    if state[0] == "set":
        place = there if type(there) is set else set()
        _check(leaves.refill(place, value, state[2]), "the order of a set")
        return place
    if state[0] == "data" and type(there) is type(value) and type(value) in (list, dict):
        if type(value) is list:
            there[:] = value
        else:
            there.clear()
            there.update(value)
        return there
    return value


def _check(fits: bool, path: str) -> None:
    if not fits:
        raise Unreadable(f"{path} does not have the same structure as in the image")


def _is_dataset(kind: type) -> bool:
    return any(
        base.__qualname__ == "Dataset" and base.__module__ == "torch.utils.data.dataset"
        for base in kind.__mro__
    )


def _pure(nest: object, deep: int) -> bool:
    if deep > DEEP:
        return False
    kinds = set(map(type, nest))
    if type(nest) is dict:
        kinds |= set(map(type, nest.values()))
    if PLAIN.issuperset(kinds):
        return True
    if not kinds <= PLAIN | _NESTS:
        return False
    inner = [*nest, *nest.values()] if type(nest) is dict else nest
    return all(_pure(each, deep + 1) for each in inner if type(each) in _NESTS)


# -- generators of random numbers, and memory

def _numpy_state(source: object) -> object:
    return _plainly(
        source.bit_generator.state if type(source).__name__ == "Generator" else source.get_state(legacy=False)
    )


def _set_numpy(source: object, state: object) -> None:
    if type(source).__name__ == "Generator":
        source.bit_generator.state = _from_plain(state)
    else:
        source.set_state(_from_plain(state))


def _plainly(state: object) -> object:
    if isinstance(state, dict):
        return {name: _plainly(value) for name, value in state.items()}
    if hasattr(state, "dtype"):
        return ("\0", state.dtype.str, state.tobytes()) if state.shape else state.item()
    return state


def _from_plain(state: object) -> object:
    if isinstance(state, dict):
        return {name: _from_plain(value) for name, value in state.items()}
    if type(state) is tuple:
        import numpy
        return numpy.frombuffer(state[2], dtype=state[1]).copy()
    return state


_GENERATORS = {  # word -> (modules and classes, state, put back)
    "random": (
        ("random", ("Random",)),
        internals.python_rng,
        lambda source, state: internals.set_python_rng(state, source),
    ),
    "numpy": (("numpy.random", ("Generator", "RandomState")), _numpy_state, _set_numpy),
    "torch": (
        ("torch", ("Generator",)),
        internals.torch_rng,
        lambda source, state: internals.set_torch_rng(state, source),
    ),
}


def generator_state(thing: object) -> tuple | None:
    """(word, state) of a generator of random numbers, None of anything else."""
    for word, ((home, names), take, _) in _GENERATORS.items():
        module = sys.modules.get(home)
        if module is not None and type(thing) in [getattr(module, name, None) for name in names]:
            return word, take(thing)
    return None


def set_generator(thing: object, state: tuple) -> None:
    _GENERATORS[state[0]][2](thing, state[1])


def _memory(thing: object) -> tuple | None:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(thing, torch.Tensor):
        if thing.device.type != "cpu" or thing.layout != torch.strided:
            raise Unreadable("its tensor is not an ordinary CPU tensor")
        flat = thing.detach().contiguous().reshape(-1).view(torch.uint8)
        return (
            "array",
            str(thing.dtype),
            tuple(thing.shape),
            bytes(memoryview(flat.numpy())) if flat.numel() else b"",
        )
    if numpy is not None and hasattr(numpy, "ndarray") and isinstance(thing, numpy.ndarray):
        if thing.dtype == object:
            raise Unreadable("its array holds objects")
        return ("array", str(thing.dtype), tuple(thing.shape), thing.tobytes())
    return None


def _write(thing: object, data: bytes) -> None:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(thing, torch.Tensor):
        if data:
            with torch.no_grad():
                thing.copy_(torch.frombuffer(bytearray(data), dtype=thing.dtype).reshape(thing.shape))
        return
    import numpy
    if thing.tobytes() != data:
        thing[...] = numpy.frombuffer(data, dtype=thing.dtype).reshape(thing.shape)


