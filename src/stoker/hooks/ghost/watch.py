"""Notices when a dataset, a transform, or anything else that feeds a loader changes while it is used: own random generators, counters,
caches, arrays written in place, memory shared between processes, and the module variables that its code reads.

No pickling, and no code of the user's is run by looking: no property, no `__eq__`, no `__getattr__`.
"""

from __future__ import annotations

import ctypes
import dis
import gc
import marshal
import operator
import sys
import types
import zlib

from . import leaves, private

MANY = 512  # elements; longer containers are looked through now and then only, and a slice at each look
SLICE = 2048
FEW = 32
MOST = 200_000  # objects that one plan looks into
SMALL = 4096  # bytes of an array that are compared at each look
WHOLE = 16 << 20  # bytes of an array that are compared now and then; of larger ones some pages
PAGE = 4096

_ATOMS = frozenset((int, float, str, bytes, bool, type(None), complex, type(...), range, slice, types.CodeType, types.BuiltinFunctionType,
                    types.ModuleType, property, types.WrapperDescriptorType, types.MethodDescriptorType, types.MethodWrapperType,
                    types.GetSetDescriptorType, types.MemberDescriptorType, type(NotImplemented), type(type.__call__)))
_PLAIN = frozenset((int, float, str, bytes, bool, type(None), complex))
# What may be opened late and read from: handles and C objects that are not expected to remember anything that shows in a sample.
_HANDLES = frozenset(
    "_io io h5py lmdb zarr pyarrow mmap zipfile tarfile zlib gzip bz2 lzma sqlite3 _sqlite3 tokenizers sentencepiece PIL cv2 "
    "decord av torchcodec rasterio netCDF4 soundfile logging _thread threading re datetime zoneinfo decimal fractions enum "
    "uuid pathlib typing abc _abc weakref _weakref _weakrefset types posixpath struct _struct safetensors fsspec s3fs "
    "functools _multiprocessing collections.abc importlib unicodedata operator _operator".split()
)
_BETWEEN = ("multiprocessing.managers", "multiprocessing.queues", "multiprocessing.synchronize", "multiprocessing.connection",
            "multiprocessing.pool", "torch.multiprocessing.queue")
_ITERATORS = frozenset((types.GeneratorType, zip, map, filter, enumerate, reversed, type(iter([])), type(iter(())), type(iter({})),
                        type(iter({}.values())), type(iter({}.items())), type(iter(set())), type(iter("")), type(iter(range(1)))))


class Held:
    """Values that hang on one owner: `values()` gives them now, `then` is how they were. `names_now()`: of its attributes; None if the
    owner is a container."""

    __slots__ = ("names", "names_now", "owner", "path", "then", "values")

    def __init__(self, path: str, values: object, owner: object, names: object = None) -> None:
        self.path, self.values, self.owner = path, values, owner
        self.names_now = names or _no_names
        self.then, self.names = values(), self.names_now()

    def differences(self, now: tuple) -> list:
        if self.names is None:
            return [] if len(now) == len(self.then) and _same(now, self.then) else [(self.owner, None)]
        before, after = dict(zip(self.names, self.then)), dict(zip(self.names_now(), now))  # noqa: B905
        return [(self.owner, name) for name in {**before, **after}
                if name not in before or name not in after or not _same((after[name],), (before[name],))]


class Watch:
    """What a set of objects reaches, remembered so that a later `look()` is cheap (about 10 us for an ordinary dataset).

    `roots`: (name, object) pairs. `stop`: ids of objects not to look into. `files`: whether the place in an open file counts."""

    def __init__(self, roots: list, stop: frozenset = frozenset(), files: bool = False) -> None:
        self.unreadable = ""  # the first thing that cannot be watched, by its path
        self._files = files
        self._seen = set(stop)
        self._keep: list = []
        self._small: list = []  # Held, compared element by element at each look
        self._large: list = []  # Held, compared now and then
        self._states: list = []  # (path, state(), remembered state)
        self._deep: list = []  # (path, state(), remembered state), compared now and then
        self._shared: list = []  # (path, state(), remembered state) of memory that other processes see
        self._order: list = []  # for the digest
        self._looks = 0
        self._digest: int | None = None
        self._next_deep = 1
        self._queue = [(thing, name) for name, thing in roots]
        for thing, path in self._queue:  # grows while it is gone through
            if len(self._keep) > MOST:
                break  # a data set of this size is data: its containers are watched, not each thing in them
            if type(thing) not in _ATOMS and id(thing) not in self._seen:
                self._seen.add(id(thing))
                self._keep.append(thing)
                self._add(thing, path)
        del self._queue

    def look(self, deep: bool = False) -> str:
        """The path of something that changed since the plan was made, or "". `deep`: also in what is otherwise compared now and then."""
        self._looks += 1
        for held in self._small:
            now = held.values()
            if not all(map(operator.is_, now, held.then)) or len(now) != len(held.then):
                if not _same(now, held.then):
                    return held.path
                held.then = now
        for path, state, then in (*self._states, *self._shared):
            if state() != then:
                return path
        if deep or self._looks >= self._next_deep:
            self._next_deep = self._looks * 2
            return self._look_deep()
        return self._look_at_slices() if self._large else ""

    def moved(self) -> list:
        """What changed among attributes and in containers since the last call: [(owner, name of the attribute; None for a container)]."""
        self._looks += 1
        deep = self._looks >= self._next_deep
        if deep:
            self._next_deep = self._looks * 2
        found = []
        for held in (*self._small, *self._large) if deep else self._small:
            now = held.values()
            if len(now) != len(held.then) or not all(map(operator.is_, now, held.then)):
                found += held.differences(now)
                held.then, held.names = now, held.names_now()
        return found

    def forgive_shared(self) -> None:
        """Memory that is shared between processes may have changed until now."""
        self._shared = [(path, state, state()) for path, state, _ in self._shared]

    def digest(self) -> int:
        """A checksum of the content when it was first asked for; equal in two processes that hold the same."""
        if self._digest is None:
            self._digest = self._checksum()
        return self._digest

    def _checksum(self) -> int:
        crc = 0
        for kind, state in self._order:
            try:
                crc = zlib.crc32(marshal.dumps(state(), 2), zlib.crc32(kind.encode(), crc))
            except ValueError:
                crc = zlib.crc32(b"?", crc)
        return crc

    def _look_deep(self) -> str:
        for held in self._large:
            now = held.values()
            if not (len(now) == len(held.then) and all(map(operator.is_, now, held.then))) and not _same(now, held.then):
                return held.path
        for path, state, then in self._deep:
            if state() != then:
                return path
        return ""

    def _look_at_slices(self) -> str:
        for held in self._large:
            if type(held.owner) is list:
                at = self._looks * SLICE % len(held.then)
                now, then = held.owner[at:at + SLICE], held.then[at:at + SLICE]
                if len(held.owner) != len(held.then) or not (all(map(operator.is_, now, then)) or _same(now, then)):
                    return held.path
        return ""

    # -- the plan

    def _add(self, thing: object, path: str) -> None:
        kind = type(thing)
        if isinstance(thing, type):
            self._add_class(thing, path)
        elif kind is tuple or kind is frozenset:
            self._order.append((kind.__name__, lambda: _plain_of(tuple(thing))))
            self._descend(tuple(thing), path)
        elif isinstance(thing, (dict, list, set, tuple)) or kind.__name__ == "deque":
            self._add_container(thing, path)
            if kind not in (dict, list, set) and kind.__name__ != "deque":
                self._add_attributes(thing, path)
        elif kind in (types.FunctionType, types.MethodType, classmethod, staticmethod):
            self._add_function(thing, path)
        elif kind.__module__.startswith(_BETWEEN) and kind.__name__ not in ("Lock", "RLock"):
            self._not_readable(path, f"a {leaves.name_of(kind)}, which other processes see")
        elif kind is types.CellType:
            self._hold(path, lambda: _cell(thing), thing, lambda: ("cell_contents",))
        elif kind is types.MappingProxyType:
            self._hold(path, lambda: tuple(thing.values()), thing)
        elif not self._add_state(thing, kind, path) and not self._add_attributes(thing, path):
            self._add_foreign(thing, kind, path)

    def _add_container(self, thing: object, path: str) -> None:
        if isinstance(thing, dict):
            self._hold(path, types.MethodType(_dict_values, thing), thing)
            return
        if isinstance(thing, set):
            self._states.append((path, lambda: set.__len__(thing), len(thing)))
            self._order.append(("set", lambda: set.__len__(thing)))
            self._descend(list(thing), path)
            return
        self._hold(path, types.MethodType(tuple, thing), thing)

    def _hold(self, path: str, values: object, owner: object, names: object = None) -> None:
        held = Held(path, values, owner, names)
        (self._small if len(held.then) <= MANY else self._large).append(held)
        if names is None:
            self._order.append(("of", lambda: _plain_of(values())))
        else:
            self._order.append((leaves.name_of(type(owner)), lambda: [*names(), *_plain_of(values())]))
        self._descend(held.then, path, held.names)

    def _descend(self, values: object, path: str, names: tuple | None = None) -> None:
        if len(values) > MANY:  # this is data: the container is watched, and a few of the things in it
            values, names = [*values[:FEW], *values[-FEW:]], None
        for n, value in enumerate(values):
            if type(value) not in _ATOMS:
                self._queue.append((value, f"{path}[{n}]" if names is None else f"{path}.{names[n]}"))

    def _add_attributes(self, thing: object, path: str) -> bool:
        found = False
        try:
            attributes = object.__getattribute__(thing, "__dict__")
        except AttributeError:
            attributes = None
        if type(attributes) is dict and id(attributes) not in self._seen:
            found = True
            self._seen.add(id(attributes))
            self._keep.append(attributes)
            self._hold(path, types.MethodType(_dict_values, attributes), thing, types.MethodType(_names_in, attributes))
        slots = leaves.slots(type(thing))
        if slots:
            found = True
            self._hold(path, lambda: tuple(_slot(d, thing) for _, d in slots), thing, lambda: tuple(name for name, _ in slots))
        if found or leaves.made_by_python(type(thing)):
            self._queue.append((type(thing), type(thing).__name__))
            return True
        return False

    def _add_class(self, kind: type, path: str) -> None:
        """Variables and functions of classes that the user wrote; what a library keeps in its classes is not looked at."""
        if not _is_users(sys.modules.get(kind.__module__)):
            return
        own = vars(kind)
        names = tuple(n for n in own if n not in ("__doc__", "__module__", "_abc_impl", "__dict__", "__weakref__"))
        self._hold(path, lambda: tuple(own.get(n) for n in names), kind, lambda: names)
        self._queue += [(base, base.__name__) for base in kind.__bases__]

    def _add_function(self, thing: object, path: str) -> None:
        if type(thing) is types.MethodType:
            self._queue += [(thing.__self__, f"{path}.self"), (thing.__func__, path)]
            return
        if type(thing) in (classmethod, staticmethod):
            self._queue.append((thing.__func__, path))
            return
        held = [*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values(), *(thing.__closure__ or ())]
        self._descend(held, path)
        if vars(thing):
            self._hold(path, types.MethodType(_dict_values, vars(thing)), thing, types.MethodType(_names_in, vars(thing)))
        space = thing.__globals__
        module = sys.modules.get(space.get("__name__", ""))
        if _is_users(module):
            self._add_names(space, *_names_of(thing.__code__), path)

    def _add_names(self, space: dict, names: frozenset, attributes: frozenset, path: str) -> None:
        """The module variables that a function of the user's reads, and those of his other modules that it may reach by an attribute."""
        if (id(space), names) in self._seen:
            return
        self._seen.add((id(space), names))
        read = [name for name in sorted(names) if name in space and not name.startswith("__")]
        if read:
            module = sys.modules.get(space.get("__name__", ""))
            self._small.append(Held(", ".join(read[:3]), lambda: tuple(space.get(name) for name in read), module, lambda: tuple(read)))
            self._order.append(("names", lambda: [_plain(space.get(name)) for name in read]))
        for name in read:
            value = space[name]
            if type(value) is types.ModuleType:
                if _is_users(value):
                    self._add_names(vars(value), attributes, attributes, f"{path}.{name}")
            elif type(value) not in _ATOMS:
                self._queue.append((value, name))

    def _add_state(self, thing: object, kind: type, path: str) -> bool:
        """Things with a state that is no attribute: generators of random numbers, tensors, arrays, shared memory, open files."""
        state = _state_of(thing, kind, self._files)
        if state is None:
            return False
        often, now_and_then = state
        if often is not None and _is_shared(thing):
            self._shared.append((path, often, often()))
        elif often is not None:
            self._states.append((path, often, often()))
        if now_and_then is not None:
            self._deep.append((path, now_and_then, now_and_then()))
        content = now_and_then if now_and_then is not None else often
        self._order.append((leaves.name_of(kind), content if content is not None else int))
        return True

    def _add_foreign(self, thing: object, kind: type, path: str) -> None:
        """An object made in C."""
        package = kind.__module__.partition(".")[0]
        if _is_iterator(kind):
            self._not_readable(path, "an iterator")
        elif hasattr(kind, "cache_info"):
            self._states.append((path, lambda: private.lru_cache_info(thing)[1], private.lru_cache_info(thing)[1]))
            self._queue += [(r, path) for r in gc.get_referents(thing) if type(r) is types.FunctionType]
        elif kind.__name__ == "partial" and package == "functools":
            self._descend((thing.func, *thing.args, *thing.keywords.values()), path)
        elif package in _HANDLES or kind.__module__ in _HANDLES or package == "torch":
            return
        elif gc.is_tracked(thing):
            self._descend([r for r in gc.get_referents(thing) if not isinstance(r, type)], path)
        elif package not in ("numpy", "pandas", "builtins"):
            self._not_readable(path, f"a {leaves.name_of(kind)}")

    def _not_readable(self, path: str, what: str) -> None:
        self.unreadable = self.unreadable or f"{path} is {what}"


def generators() -> list:
    """(name, generator) of the random generators that live in this process, the global ones left out: libraries may own some that no
    path from a dataset leads to. Those of `remember_generators()` are among them."""
    import random
    numpy = sys.modules.get("numpy.random")
    kinds = [random.Random]
    skip = {id(random._inst)}
    if numpy is not None and hasattr(numpy, "Generator"):
        kinds += [numpy.Generator, numpy.RandomState]
        skip.add(id(numpy.mtrand._rand))
    kinds = tuple(kinds)
    found = {id(each): each for each in (*_strays, *gc.get_objects()) if type(each) in kinds and id(each) not in skip}
    return [(f"a {leaves.name_of(type(each))} of a library", each) for each in found.values()]


def remember_generators() -> None:
    """Call before the garbage collector forgets what lives now."""
    _strays[:] = [each for _, each in generators()]


_strays: list = []


# -- what a thing's state is

def _state_of(thing: object, kind: type, files: bool) -> tuple | None:
    """(state to be compared at each look, state to be compared now and then), each a function or None; None for a thing without one."""
    import random
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if isinstance(thing, random.Random):
        return (lambda: private.python_rng(thing)), None
    if torch is not None:
        if issubclass(kind, torch.Tensor):
            return _tensor_state(thing)
        if issubclass(kind, torch.Generator):
            return (lambda: private.torch_rng(thing)), None
    if numpy is not None and hasattr(numpy, "ndarray"):
        if issubclass(kind, numpy.ndarray):
            return _memory_state(lambda: thing, thing.nbytes, thing.flags.writeable and thing.dtype != object)
        if kind.__name__ in ("Generator", "RandomState") and hasattr(kind, "bit_generator" if kind.__name__ == "Generator" else "seed"):
            return (lambda: _numpy_rng(thing)), None
    if kind is bytearray or kind is memoryview or kind.__module__ == "array":
        return _memory_state(lambda: memoryview(thing), memoryview(thing).nbytes, True)
    if isinstance(thing, (ctypes._SimpleCData, ctypes.Array, ctypes.Structure)):
        return (lambda: bytes(thing)) if ctypes.sizeof(thing) <= WHOLE else None, None
    if files and kind.__module__ in ("_io", "io") and hasattr(kind, "tell"):
        return (lambda: _tell(thing)), None
    return None


def _tensor_state(tensor: object) -> tuple:
    import torch
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.device.type != "cpu":
        return (lambda: tensor._version), None
    try:
        flat = tensor.detach().reshape(-1).view(torch.uint8) if tensor.is_contiguous() and tensor.numel() else None
        array = None if flat is None else flat.numpy()
    except (RuntimeError, TypeError):
        array = None
    if array is None:
        return (lambda: (tensor._version, tuple(tensor.shape))), None
    if tensor.is_shared() and array.nbytes <= SMALL:
        return array.tobytes, None
    return (lambda: (tensor._version, tuple(tensor.shape))), lambda: _crc(array)


def _is_shared(thing: object) -> bool:
    """Whether other processes write to the same memory: a shared tensor, or a ctypes object, which is hardly used for anything else."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(thing, torch.Tensor):
        return thing.is_shared()
    return isinstance(thing, (ctypes._SimpleCData, ctypes.Array, ctypes.Structure))


def _memory_state(get: object, size: int, writable: bool) -> tuple:
    if not writable or not size:
        return None, (lambda: _crc(get())) if size else None
    if size <= SMALL:
        return (lambda: _crc(get())), None
    return None, lambda: _crc(get())


def _crc(array: object) -> int:
    view = memoryview(array)
    if not view.contiguous:
        numpy = sys.modules.get("numpy")
        if numpy is None or view.nbytes > WHOLE:
            return 0
        view = memoryview(numpy.ascontiguousarray(array))
    view = view.cast("B") if view.nbytes else memoryview(b"")
    if view.nbytes <= WHOLE:
        return zlib.crc32(view)
    crc = 0
    for at in range(0, view.nbytes, view.nbytes // 256):
        crc = zlib.crc32(view[at:at + PAGE], crc)
    return crc


def _numpy_rng(source: object) -> tuple:
    return _flat(source.bit_generator.state if type(source).__name__ == "Generator" else source.get_state(legacy=False))


def _flat(state: object) -> tuple:
    found = []
    for name, value in sorted(state.items()):
        found += [name, *_flat(value)] if isinstance(value, dict) else [name, value.tobytes() if hasattr(value, "tobytes") else str(value)]
    return tuple(found)


def _tell(file: object) -> object:
    try:
        return None if file.closed else file.tell()
    except (OSError, ValueError):
        return None


def _cell(cell: object) -> tuple:
    try:
        return (cell.cell_contents,)
    except ValueError:
        return (None,)


def _slot(descriptor: object, thing: object) -> object:
    try:
        return descriptor.__get__(thing)
    except AttributeError:
        return None


# -- comparing

def _dict_values(which: dict) -> tuple:
    return tuple(dict.values(which))


def _names_in(which: dict) -> tuple:
    return tuple(which)


def _no_names() -> None:
    return None


def _same(now: object, then: object) -> bool:
    """Element by element: the same object, an equal plain value, or a handle that was opened where nothing was."""
    if len(now) != len(then):
        return False
    for a, b in zip(now, then):  # noqa: B905
        if a is b:
            continue
        if type(a) in _PLAIN:
            if type(a) is not type(b) or (a != b and repr(a) != repr(b)):
                return False
        elif type(a) is types.MethodType and type(b) is types.MethodType:
            if a.__func__ is not b.__func__ or a.__self__ is not b.__self__:
                return False
        elif b is not None or not _is_handle(type(a)):
            return False
    return True


def _is_handle(kind: type) -> bool:
    return kind.__module__ in _HANDLES or (kind.__module__ or "").partition(".")[0] in _HANDLES


def _plain(value: object) -> object:
    kind = type(value)
    if kind in _PLAIN:
        return value
    return kind.__name__


def _plain_of(values: object) -> list:
    if len(values) > MANY and not _PLAIN.issuperset(map(type, values)):
        values = [len(values), *values[:FEW], *values[-FEW:]]
    return [value if type(value) in _PLAIN else type(value).__name__ for value in values]


# -- kinds

def _is_iterator(kind: type) -> bool:
    return kind in _ITERATORS or kind.__module__ == "itertools" or (kind.__name__.endswith("iterator") and kind.__module__ == "builtins")


def _is_users(module: object) -> bool:
    return module is not None and leaves.is_user_module(module.__name__, module)


def _names_of(code: types.CodeType) -> tuple:
    """(global names, all other names) that a function speaks of, the functions within it included."""
    found = _names.get(code)
    if found is None:
        names, others = set(), set(code.co_names)
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL"):
                names.add(step.argval)
        for const in code.co_consts:
            if type(const) is types.CodeType:
                inner, attributes = _names_of(const)
                names |= inner
                others |= attributes
        found = _names[code] = frozenset(names), frozenset(others)
    return found


_names: dict = {}
