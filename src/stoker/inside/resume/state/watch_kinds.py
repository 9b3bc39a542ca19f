"""The kinds of things that a Watch meets: what their state is, which of them are handles that may be opened
late, and what code reads."""

from __future__ import annotations

import ctypes
import dis
import gc
import io
import itertools
import mmap
import os
import random
import sys
import types
import zlib

from ...looks import has, isinstance
from ..core import internals, leaves
from . import walk_library, walk_pickled

SMALL = 4096  # bytes of an array that are compared at each look
WHOLE = 16 << 20  # bytes of an array that are compared now and then; of larger ones some pages
PAGE = 4096

ATOMS = frozenset(
    (
        int,
        float,
        str,
        bytes,
        bool,
        type(None),
        complex,
        type(...),
        range,
        slice,
        types.CodeType,
        types.ModuleType,
        property,
        types.WrapperDescriptorType,
        types.MethodDescriptorType,
        types.GetSetDescriptorType,
        types.MemberDescriptorType,
        type(NotImplemented),
        type(type.__call__),
    )
)
# What may be opened late and read from: handles and C objects that are not expected to remember anything that
# shows in a sample.
HANDLES = frozenset(
    "_io io h5py lmdb zarr pyarrow mmap zipfile tarfile zlib gzip bz2 lzma sqlite3 _sqlite3 tokenizers "
    "sentencepiece PIL cv2 "
    "decord av torchcodec rasterio netCDF4 soundfile logging _thread threading re datetime zoneinfo "
    "decimal fractions enum "
    "uuid pathlib typing abc _abc weakref _weakref _weakrefset types posixpath struct _struct safetensors "
    "fsspec s3fs "
    "functools _multiprocessing collections.abc importlib unicodedata operator _operator".split()
)
BETWEEN = (
    "multiprocessing.managers",
    "multiprocessing.queues",
    "multiprocessing.synchronize",
    "multiprocessing.connection",
    "multiprocessing.pool",
    "torch.multiprocessing.queue",
)
_ITERATORS = frozenset(
    (
        types.GeneratorType,
        zip,
        map,
        filter,
        enumerate,
        reversed,
        type(iter([])),
        type(iter(())),
        type(iter({})),
        type(iter({}.values())),
        type(iter({}.items())),
        type(iter(set())),
        type(iter("")),
        type(iter(range(1))),
    )
)


def global_generators() -> list:
    """Those whose state travels with each batch."""
    numpy, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
    found = [random._inst]
    if numpy is not None and hasattr(numpy, "mtrand"):
        found.append(numpy.mtrand._rand)
    return [*found, torch.default_generator] if torch is not None else found


def strays() -> list:
    """(name, generator) of the random generators that live in this process, the global ones left out:
    libraries may own some that no path from a data set leads to.
    Looked for when torch is imported and when the first worker is to start."""
    global _asked
    if not _asked:
        _asked = True
        remember_generators()
    return [(f"a {leaves.name_of(type(each))} of a library", each) for each in _strays]


def remember_generators() -> None:
    """Called first before the garbage collector forgets what lives then."""
    numpy = sys.modules.get("numpy.random")
    kinds = (
        (random.Random, numpy.Generator, numpy.RandomState)
        if numpy is not None and hasattr(numpy, "Generator")
        else (random.Random,)
    )
    skip = set(map(id, global_generators()))
    # `(*a, *b)` makes a list that holds itself, and is there until it is collected
    every = itertools.chain(_strays, gc.get_objects())
    found = {id(each): each for each in every if type(each) in kinds and id(each) not in skip}
    _strays[:] = found.values()


_strays: list = []
_asked = False


# -- what a thing's state is

def state_of(thing: object, kind: type, files: bool, process: bool = False) -> tuple | None:
    """(state to be compared at each look, state to be compared now and then), each a function or None;
    None for a thing without one."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if isinstance(thing, random.Random):
        return (lambda: internals.python_rng(thing)), None
    if torch is not None:
        if issubclass(kind, torch.Tensor):
            return _tensor_state(thing)
        if issubclass(kind, torch.Generator):
            return (lambda: internals.torch_rng(thing)), None
    if numpy is not None and hasattr(numpy, "ndarray"):
        if issubclass(kind, numpy.ndarray) and _is_read(thing):
            return None, None
        if issubclass(kind, numpy.ndarray):
            return _memory_state(lambda: thing, thing.nbytes, thing.flags.writeable and thing.dtype != object)
        if kind.__name__ in ("Generator", "RandomState") and hasattr(
            kind, "bit_generator" if kind.__name__ == "Generator" else "seed"
        ):
            return (lambda: _numpy_rng(thing)), None
        if hasattr(numpy, "random") and isinstance(
            thing, (numpy.random.BitGenerator, numpy.random.SeedSequence)
        ):
            return (lambda: _numpy_bits(thing)), None
    if kind is bytearray or kind is memoryview or module_of(kind) == "array":
        return _memory_state(lambda: memoryview(thing), memoryview(thing).nbytes, True)
    if has(kind, "cache_info"):
        return (lambda: thing.cache_info()[1]), None
    if isinstance(thing, (ctypes._SimpleCData, ctypes.Array, ctypes.Structure)):
        return (lambda: bytes(thing)) if ctypes.sizeof(thing) <= WHOLE else None, None
    if kind.__name__ == "ImagingCore":
        return None, lambda: walk_library.pixels(thing)
    if walk_pickled.knows(kind) and walk_pickled.checksum(thing) is not None:
        return None, lambda: walk_pickled.checksum(thing)
    if isinstance(thing, (io.BytesIO, io.StringIO)):
        return (lambda: _size_and_place(thing, files)), lambda: _content_of_memory(thing)
    if files and module_of(kind) in ("_io", "io") and hasattr(kind, "tell"):
        return (lambda: _tell(thing)), None
    if (
        process
        and module_of(kind) == "_io"
        and hasattr(kind, "seek")
        and not thing.closed
        and thing.readable()
        and thing.seekable()
    ):
        return _read_in_order(thing), None
    if process and module_of(kind) == "sqlite3" and hasattr(kind, "total_changes"):
        return (lambda: thing.total_changes), None
    return None


def _is_read(array: object) -> bool:
    """Whether it lies in a file that is mapped to be read only:
    nobody changes it by this array, and the file may be shorter by now."""
    while array is not None and not isinstance(array, mmap.mmap):
        array = getattr(array, "base", None)
    if array is None or array.closed:
        return False
    with memoryview(array) as view:
        return view.readonly


def _tensor_state(tensor: object) -> tuple:
    import torch
    state = leaves.quietly(_state_of_tensor)(tensor)
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return state
    return tuple(each and leaves.quietly(each) for each in state)  # of a class of the script's, perhaps


def _state_of_tensor(tensor: object) -> tuple:
    import torch
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.device.type != "cpu":
        return (lambda: tensor._version), None
    try:
        flat = (
            tensor.detach().reshape(-1).view(torch.uint8)
            if tensor.is_contiguous() and tensor.numel()
            else None
        )
        array = None if flat is None else flat.numpy()
    except (RuntimeError, TypeError):
        array = None
    if array is None:
        return (lambda: (tensor._version, tuple(tensor.shape))), None
    if tensor.is_shared():
        step = -(-array.nbytes // SMALL)
        return (lambda: (tensor._version, array[::step].tobytes())), None
    return (lambda: (tensor._version, tuple(tensor.shape))), lambda: _crc(array)


@leaves.quietly
def is_shared(thing: object) -> bool:
    """Whether other processes write to the same memory:
    a shared tensor, or a ctypes object, which is hardly used for anything else."""
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


@leaves.quietly
def content_of(thing: object) -> object:
    """A function that gives a checksum of a tensor's memory, None for other things."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(thing, torch.Tensor):
        return None
    try:
        array = thing.detach().contiguous().reshape(-1).view(torch.uint8).numpy() if thing.numel() else None
    except (RuntimeError, TypeError):
        return None
    return int if array is None else lambda: _crc(array)


def _crc(array: object) -> int:
    view = memoryview(array)
    if view.f_contiguous and not view.c_contiguous:  # `table[columns].values`
        view = memoryview(array.T)
    elif not view.contiguous:
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
    return (
        _numpy_bits(source.bit_generator)
        if type(source).__name__ == "Generator"
        else _flat(source.get_state(legacy=False))
    )


def _numpy_bits(source: object) -> tuple:
    """Of a bit generator or of what seeds one: the state, and how many were made from it."""
    seeds = getattr(source, "seed_seq", None) or getattr(source, "_seed_seq", None) or source
    return (
        getattr(seeds, "n_children_spawned", None),
        *(_flat(source.state) if isinstance(getattr(source, "state", None), dict) else ()),
    )


def _size_and_place(file: object, place: bool) -> tuple:
    """Of a file in memory; who reads from one says where, as a rule."""
    if file.closed:
        return ()
    here = file.tell()
    size = file.seek(0, 2)
    file.seek(here)
    return (size, here) if place else (size,)


def _content_of_memory(file: object) -> object:
    return None if file.closed else leaves.crc(file.getvalue())


def _read_in_order(file: object) -> object:
    """State of a file: how often it was read on from where the last sample had left it,
    without being told where."""
    # place, how often it was told one, how often it went on by itself
    seek, sought, known = file.seek, [0], [_tell(file), 0, 0]
    def noted(*args: object) -> int:
        sought[0] += 1
        return seek(*args)

    def state() -> int:
        place = _tell(file)
        known[2] += place != known[0] and sought[0] == known[1]
        known[:2] = place, sought[0]
        return known[2]
    try:
        file.seek = noted
    except AttributeError:
        return lambda: 0
    return state


_DECIMAL = (28, "ROUND_HALF_EVEN", -999999, 999999)  # as a context begins


def settings() -> tuple:
    """What a data set may set for its whole process."""
    context = sys.modules["decimal"].getcontext() if "decimal" in sys.modules else None
    of_decimal = _DECIMAL if context is None else (context.prec, context.rounding, context.Emin, context.Emax)
    return (dict(getattr(os.environ, "_data", os.environ)), sys.getrecursionlimit(), os.getcwd(), of_decimal)


def _flat(state: object) -> tuple:
    found = []
    for name, value in sorted(state.items()):
        found += (
            [name, *_flat(value)]
            if isinstance(value, dict)
            else [name, value.tobytes() if hasattr(value, "tobytes") else str(value)]
        )
    return tuple(found)


def _tell(file: object) -> object:
    try:
        return None if file.closed else file.tell()
    except (OSError, ValueError):
        return None


def cell_content(cell: object) -> tuple:
    try:
        return (cell.cell_contents,)
    except ValueError:
        return (None,)


def slot_content(descriptor: object, thing: object) -> object:
    try:
        return descriptor.__get__(thing)
    except AttributeError:
        return None


# -- kinds

def is_iterator(kind: type) -> bool:
    return (
        kind in _ITERATORS
        or module_of(kind) == "itertools"
        or (kind.__name__.endswith("iterator") and module_of(kind) == "builtins")
    )


def is_users(module: object) -> bool:
    return module is not None and leaves.is_user_module(module.__name__, module)


def names_of(code: types.CodeType) -> tuple:
    """(global names, all other names) that a function speaks of, the functions within it included."""
    found = _names.get(code)
    if found is None:
        names, others = set(), set(code.co_names)
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL"):
                names.add(step.argval)
        for const in code.co_consts:
            if type(const) is types.CodeType:
                inner, attributes = names_of(const)
                names |= inner
                others |= attributes
        found = _names[code] = frozenset(names), frozenset(others)
    return found


_names: dict = {}


def module_of(kind: type) -> str:
    """"" where a class in C keeps a descriptor under that name."""
    return kind.__module__ if isinstance(kind.__module__, str) else ""


def is_handle(kind: type) -> bool:
    return module_of(kind) in HANDLES or module_of(kind).partition(".")[0] in HANDLES
