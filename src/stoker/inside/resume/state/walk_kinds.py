"""How the walk goes into each kind of object: one small handler per kind, found once per class and kept."""

from __future__ import annotations

import _random
import array
import collections
import contextvars
import enum
import functools
import io
import itertools
import mmap
import re
import struct
import sys
import threading
import types
import weakref

from ...looks import isinstance, vars
from ..core import leaves
from . import walk_classes, walk_library, walk_opaque, walk_pickled
from .walk_classes import holder, is_strict, is_user_kind, of_a_package, of_instance, of_unknown, user_kinds
from .walk_code import (
    of_builtin,
    of_cell,
    of_function,
    of_lru,
    of_method,
    of_module,
    of_partial,
    of_property,
    of_wrapped,
)
from .walk_values import (
    of_array,
    of_bytes_like,
    of_ctypes,
    of_defaultdict,
    of_deque,
    of_dict,
    of_hash,
    of_memory_file,
    of_plain_subclass,
    of_rng,
    of_scalar,
    of_sequence,
    of_set,
    of_storage,
    of_tensor,
    of_typed_storage,
    of_unmade,
    of_value,
)

HANDLERS: dict = {}  # class -> handler(walk, thing, path), or None: a leaf
ITERATORS: set = set()  # classes of C iterators
_loader_files = ("torch/utils/data/",)
_UNSET, _slots = object(), {}
_torch_known = _numpy_known = False


def is_loader_file(file: str) -> bool:
    return any(part in file for part in _loader_files)


def slots_of(kind: type) -> list:
    found = _slots.get(kind)
    if found is None:
        found = _slots[kind] = leaves.slots(kind)
    return found


def find(kind: type):
    """The handler of a class that was not met before; kept for the next time."""
    _learn_libraries()
    if len(HANDLERS) > 20000:  # classes made in a loop are not kept for ever
        HANDLERS.clear()
        HANDLERS.update(_EXACT)
        _learn_libraries(again=True)
    if kind not in HANDLERS:
        HANDLERS[kind] = _classify(kind)
    return HANDLERS[kind]


def _classify(kind: type):
    if issubclass(kind, type) and not issubclass(kind, enum.EnumMeta):
        return _type  # a class, whoever made the class of classes
    for base in kind.__mro__:
        if (base.__module__, base.__qualname__) in _BY_NAME:
            handler = _BY_NAME[base.__module__, base.__qualname__]
            return (
                _with_attributes(handler) if handler in _WITHOUT_ATTRIBUTES and user_kinds(kind) else handler
            )
    if issubclass(type(kind), enum.EnumMeta):
        return walk_library.of_member
    if any(walk_pickled.knows(base) for base in kind.__mro__):
        return walk_pickled.of_pickled
    if leaves.is_opaque(kind) and not leaves.is_value(kind):
        return (
            walk_opaque.of_opaque
            if kind.__dictoffset__ and leaves.made_by_python(kind) and not leaves.is_of_ours(kind)
            else None
        )
    if leaves.is_value(kind):
        return of_value
    base = leaves.solid(kind)
    handler = _EXACT.get(base, 0)
    if handler == 0 and issubclass(base, tuple):
        handler = of_sequence
    if handler == 0:
        handler = _type if issubclass(kind, type) else _by_family(base)
    if kind is base:
        return handler
    if handler is None:
        return _with_attributes(_nothing) if leaves.is_opaque(base) else None
    if base in leaves.PLAIN:
        return of_plain_subclass
    return handler if handler is of_instance or handler in _ATTRIBUTES_TOO else _with_attributes(handler)


def _by_family(base: type):
    if base is object:
        return of_instance
    if issubclass(base, BaseException):
        return _exception
    module = base.__module__ or ""
    if module == "_ctypes":
        return of_ctypes
    if module == "torch.autograd.function" or base.__qualname__.endswith(
        ("Backward0", "Backward1", "Backward2", "AccumulateGrad")
    ):
        return walk_opaque.of_node
    if leaves.is_opaque(base):
        return None
    if module in leaves.HASHES and hasattr(base, "hexdigest"):
        return of_hash
    return of_unknown


def _learn_libraries(again: bool = False) -> None:
    """Torch's and numpy's own kinds, once the script has imported them."""
    global _torch_known, _numpy_known
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if hasattr(numpy, "random") and hasattr(numpy, "ufunc") and (again or not _numpy_known):
        _numpy_known = True
        more = {
            numpy.ndarray: of_array,
            numpy.ufunc: _by_name,
            numpy.random.Generator: of_rng,
            numpy.random.RandomState: of_rng,
        }
        more[numpy.random.SeedSequence] = of_value
        more[numpy.random.BitGenerator] = of_rng
        _know(more)
    if hasattr(torch, "optim") and hasattr(torch, "utils") and (again or not _torch_known):
        _torch_known = True
        c = torch._C
        more = {
            torch._C.TensorBase: of_tensor,
            torch.Tensor: of_tensor,
            torch.nn.Parameter: of_tensor,
            torch.Generator: of_rng,
        }
        more.update(
            {
                c.StorageBase: of_storage,
                torch.UntypedStorage: of_storage,
                torch.TypedStorage: of_typed_storage,
            }
        )
        more.update(dict.fromkeys((torch.device, torch.dtype, torch.layout, torch.memory_format), of_value))
        more[torch.Size] = of_sequence
        for (
            name
        ) in "Stream Event _CudaStreamBase _CudaEventBase _FunctionBase DispatchKeySet DispatchKey".split():
            if isinstance(getattr(c, name, None), type):
                more[getattr(c, name)] = None
        _know(more)


def _know(more: dict) -> None:
    _EXACT.update(more)
    HANDLERS.update(more)


# -- classes


def _type(walk, thing, path):
    walk.facts[path] = (
        "class",
        leaves.text(leaves.name_of(thing)),
        *(walk_opaque.registered(thing) if user_kinds(thing) else ()),
    )
    if not is_user_kind(thing):
        if of_a_package(thing):
            for name, value in list(vars(thing).items()):
                if type(value) in leaves.PLAIN and not name.startswith("__"):
                    walk.add(value, f"{path}.{name}", thing, name, "attr")
        return
    if is_strict(thing):
        walk.strict.append((thing, path))
    for name, value in list(vars(thing).items()):
        if not (name.startswith("__") and name.endswith("__")) or type(value) in _COUNTS:
            walk.add(value, f"{path}.{name}", thing, name, "attr")
    for n, base in enumerate(thing.__bases__):
        walk.add(base, f"{path}.__bases__[{n}]")


_COUNTS = (types.FunctionType, int, float, bool)  # under whatever name


# -- objects


def _with_attributes(handler):
    """A class made in Python on top of a C kind: what the C part holds, and the attributes."""

    def both(walk, thing, path):
        handler(walk, thing, path)
        walk.add_attributes(thing, path)
        if is_strict(type(thing)):
            walk.strict.append((thing, path))
        if user_kinds(type(thing)):
            walk.add(type(thing), f"T:{leaves.name_of(type(thing))}")

    return both


def _nothing(walk, thing, path):
    """Of what others judge (a file, a struct), and a class in Python adds attributes to:
    a compressor, the script's own."""
    walk.facts[path] = (leaves.name_of(type(thing)),)
    walk.things[path] = thing


def _loader(walk, thing, path):
    for word in ("dataset", "sampler", "batch_sampler", "collate_fn", "worker_init_fn"):
        part = thing.__dict__.get(word)
        if part is not None and type(part) not in leaves.PLAIN:
            walk.strict.append((part, f"{path}.{word}"))
    walk.facts[path] = (leaves.name_of(type(thing)),)
    walk.add_attributes(thing, path, ("_iterator", "_BaseDataLoaderIter"))
    if user_kinds(type(thing)):
        walk.add(type(thing), f"T:{leaves.name_of(type(thing))}")


def _file_system(walk, thing, path):
    """Of fsspec: what it calls itself is made of the numbers of this process and thread."""
    walk_library.all_but(walk, thing, path, ("_fs_token_", "_pid"))


def _loader_iterator(walk, thing, path):
    walk.leave_out.append(thing)  # the loader's part saves it


def _scripted(walk, thing, path):
    walk.refusals.append(
        f"{leaves.name_of(type(thing))} is compiled by torch.jit, which Stoker cannot inspect"
    )


def _optimizer(walk, thing, path):
    walk.facts[path] = (leaves.name_of(type(thing)),)
    walk.things[path] = thing
    walk.optimizers[path] = thing
    walk.strict.append((thing, path))
    walk.add_attributes(thing, path, ("state",))
    if user_kinds(type(thing)):
        walk.add(type(thing), f"T:{leaves.name_of(type(thing))}")
    places = ordinals(thing)
    entries = []
    for key, value in list(dict.items(thing.state)):
        place = places.get(id(key))
        if place is not None:
            entries.append((0, place, key, value))
        elif type(key) in leaves.PLAIN:
            entries.append((1, repr(key), key, value))
        else:
            walk.refusals.append(
                f"{leaves.name_of(type(thing))} has state for an object that is not one of its parameters"
            )
    walk.seen[id(thing.state)] = path + ".state"
    for _, place, key, value in sorted(entries, key=lambda e: e[:2]):
        walk.add(value, f"{path}.state[{place}]", thing.state, key, "item")


def ordinals(optimizer) -> dict:
    """id(parameter) -> its place over all groups."""
    found: dict = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            found.setdefault(id(parameter), len(found))
    return found


def _exception(walk, thing, path):
    walk.facts[path] = (leaves.name_of(type(thing)),)
    walk.add(thing.args, path + ".args")
    walk.add_attributes(thing, path)
    for word in ("__cause__", "__context__", "__traceback__"):
        walk.add(getattr(thing, word), f"{path}.{word}")


def _traceback(walk, thing, path):
    walk.add(thing.tb_frame, path + ".tb_frame")
    deeper = thing.tb_next
    # behind us lies what a ghost does not run: no state of it
    if deeper is None or not leaves.is_ours(deeper.tb_frame.f_code.co_filename):
        walk.add(deeper, path + ".tb_next")


def _frame(walk, thing, path):
    if any(thing is frame for frame in walk.stack) or leaves.is_ours(thing.f_code.co_filename):
        return
    inner = walk.locals_of(thing)
    if inner is not thing.f_globals:
        for name, value in list(inner.items()):
            walk.add(value, f"{path}.{name}")


def _generator(walk, thing, path):
    prefix = thing.__class__.__name__[:2].replace("ge", "gi").replace("co", "cr").replace("as", "ag")
    code, frame = getattr(thing, prefix + "_code"), getattr(thing, prefix + "_frame")
    if is_loader_file(code.co_filename):
        walk.leave_out.append(thing)
        return
    if frame is None:
        walk.facts[path] = ("generator", code.co_name, "finished")
        return
    walk.facts[path] = ("generator", code.co_name, frame.f_lineno, frame.f_lasti)
    if getattr(thing, prefix + "_running"):
        return
    inner = walk.locals_of(frame)
    for name, value in list(inner.items()):
        walk.add(value, f"{path}.{name}")
    named = {id(v) for v in inner.values()} | {id(inner)}
    n = 0
    parts = leaves.parts(thing)
    # "no error", left there by whatever this generator has called and a ghost has not
    while parts and parts[-1] is None:
        parts.pop()
    for part in parts:
        if getattr(part, "__code__", None) is code:
            continue
        if id(part) not in named and type(part) not in (str, types.CodeType, types.FrameType, types.CellType):
            walk.add(part, f"{path}<{n}>")
            n += 1


def _iterator(walk, thing, path):
    walk.facts[path] = (type(thing).__name__, leaves.position(thing))
    walk.things[path] = thing
    if type(thing) in _HIDDEN:
        walk.unknown.append((path, leaves.name_of(type(thing)), thing))
    for n, part in enumerate(leaves.parts(thing)):
        walk.add(part, f"{path}<{n}>")


def _context_variable(walk, thing, path):
    value = thing.get(_UNSET)
    walk.facts[path] = ("context variable", value is _UNSET)
    if value is not _UNSET:
        walk.add(value, f"{path}<value>")


def _thread_local(walk, thing, path):
    """What it holds for this thread, the one that trains."""
    walk.facts[path] = (leaves.name_of(type(thing)),)
    walk.add(leaves.of_this_thread(thing), f"{path}.__dict__")


def _lock(walk, thing, path):
    walk.facts[path] = ("lock", thing.locked() if hasattr(thing, "locked") else thing._is_owned())


def _weak(walk, thing, path):
    walk.weak.append((path, thing))


def _proxy(walk, thing, path):
    """A weak reference that does not tell what it means, but for the address at the end of its text."""
    walk.weak.append((path, int(type(thing).__repr__(thing).rpartition("0x")[2].rstrip(">"), 16)))


def _by_name(walk, thing, path):
    """A method of a type, a function of numpy's: it never changes, but another may take its place."""
    owner = getattr(thing, "__objclass__", None)
    walk.facts[path] = (
        type(thing).__name__,
        leaves.name_of(owner) if owner is not None else "",
        thing.__name__,
    )


def _code(walk, thing, path):
    walk.facts[path] = ("code", thing.co_name, leaves.code_sum(thing))


def _match(walk, thing, path):
    """Of a regular expression: where it was found, in what."""
    walk.add(thing.string, f"{path}.string")
    walk.facts[path] = ("match", leaves.value_of(thing.re), thing.regs, thing.pos, thing.endpos)


_EXACT: dict = dict.fromkeys(leaves.PLAIN, of_value)
_EXACT.update({
    dict: of_dict, collections.OrderedDict: _with_attributes(of_dict),
    collections.defaultdict: of_defaultdict, list: of_sequence,
    tuple: of_sequence, collections.deque: of_deque, set: of_set, frozenset: of_set,
    bytearray: of_bytes_like, array.array: of_bytes_like, mmap.mmap: of_bytes_like,
    memoryview: of_bytes_like, object: of_instance,
    types.SimpleNamespace: of_instance,
    types.FunctionType: of_function, types.CellType: of_cell, types.MethodType: of_method,
    types.BuiltinFunctionType: of_builtin,
    types.MethodWrapperType: of_builtin, functools.partial: of_partial, property: of_property,
    staticmethod: of_wrapped, classmethod: of_wrapped, functools._lru_cache_wrapper: of_lru,
    type: _type, types.ModuleType: of_module, types.TracebackType: _traceback, types.FrameType: _frame,
    types.GeneratorType: _generator, types.CoroutineType: _generator, types.AsyncGeneratorType: _generator,
    weakref.ref: _weak,
    types.MappingProxyType: holder, _random.Random: of_rng, contextvars.ContextVar: _context_variable,
    threading.Thread: walk_opaque.of_thread, threading.Timer: walk_opaque.of_thread,
    threading.local: _thread_local, threading.Event: of_instance, type(threading.Lock()): _lock,
    type(threading.RLock()): _lock,
})  # fmt: skip
_EXACT.update(dict.fromkeys((io.StringIO, io.BytesIO), _with_attributes(of_memory_file)))
_EXACT.update(dict.fromkeys((
    types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
), _by_name))  # fmt: skip
_EXACT[type(vars(collections.namedtuple("_", "one"))["one"])] = None
_EXACT.update(
    {weakref.ProxyType: _proxy, weakref.CallableProxyType: _proxy, types.CodeType: _code, re.Match: _match}
)
_BY_NAME = {
    ("torch.utils.data.dataloader", "_BaseDataLoaderIter"): _loader_iterator,
    ("torch.utils.data.dataloader", "DataLoader"): _loader,
    ("torch.optim.optimizer", "Optimizer"): _optimizer, ("numpy", "generic"): of_scalar,
    ("torch.jit._script", "ScriptModule"): _scripted,
    ("h5py._objects", "ObjectID"): walk_library.of_h5,
    ("h5py._hl.base", "HLObject"): walk_library.of_h5_object,
    ("fsspec.spec", "AbstractFileSystem"): _file_system, ("builtins", "ImagingCore"): walk_library.of_pixels,
    ("torch._C", "ScriptFunction"): _scripted, ("torch.jit", "ScriptFunction"): _scripted,
    ("torch.jit", "TopLevelTracedModule"): _scripted,
    ("torch.nn.parameter", "UninitializedTensorMixin"): of_unmade,
    ("concurrent.futures._base", "Future"): of_instance, ("tempfile", "SpooledTemporaryFile"): of_instance,
    ("_sre", "SRE_Scanner"): of_unknown, ("torch._C", "_NodeBase"): walk_library.of_graph_node,
    ("_socket", "socket"): walk_library.of_socket,
    ("asyncio.base_events", "BaseEventLoop"): walk_library.of_event_loop,
    ("_csv", "writer"): None, ("_csv", "Dialect"): None,
    ("logging", "Logger"): walk_library.of_logger, ("logging", "Handler"): walk_library.of_log_handler,
    ("argparse", "Namespace"): of_instance, ("threading", "Semaphore"): of_instance,
    ("threading", "Barrier"): of_instance,
    ("_io", "TextIOWrapper"): walk_library.of_file, ("_io", "BufferedReader"): walk_library.of_file,
    ("_io", "BufferedWriter"): walk_library.of_file, ("_io", "BufferedRandom"): walk_library.of_file,
    # of tiktoken
    ("numpy", "dtype"): of_value, ("numpy", "_ArrayFunctionDispatcher"): _by_name,
    ("builtins", "CoreBPE"): None,
    ("builtins", "Environment"): walk_library.of_lmdb,
    ("functools", "_lru_list_elem"): None, ("builtins", "instancemethod"): None,
    ("torch._C", "Node"): walk_opaque.of_node,
    ("torch.autograd.graph", "Node"): walk_opaque.of_node, ("threading", "Condition"): of_instance,
    ("multiprocessing.synchronize", "SemLock"): walk_opaque.of_semaphore,
    ("multiprocessing.synchronize", "Condition"): of_instance,
    ("multiprocessing.synchronize", "Event"): of_instance,
    ("multiprocessing.connection", "_ConnectionBase"): walk_opaque.of_pipe,
    ("multiprocessing.queues", "Queue"): walk_opaque.of_queue,
    ("multiprocessing.queues", "SimpleQueue"): walk_opaque.of_queue,
    ("rich.console", "Console"): walk_opaque.of_console,
    ("rich.progress", "Progress"): walk_opaque.of_progress,
}  # fmt: skip
_WITHOUT_ATTRIBUTES = (of_scalar, walk_library.of_file, walk_library.of_socket)
_ATTRIBUTES_TOO = (of_instance, _optimizer, _loader, of_unknown, _exception)


def _learn_iterators() -> None:
    i, nothing, words = itertools, (), collections.OrderedDict()
    makers = (
        zip(), map(str, nothing), filter(None, nothing), enumerate(nothing), reversed([]), i.count(),
        i.cycle(nothing), i.repeat(0),
        i.chain(), i.islice(nothing, 0),
        i.tee(nothing)[0], i.groupby(nothing), i.accumulate(nothing), i.product(), i.starmap(str, nothing),
        i.takewhile(None, nothing), i.dropwhile(None, nothing), i.filterfalse(None, nothing), i.zip_longest(),
        i.permutations(nothing),
        i.combinations(nothing, 0), i.combinations_with_replacement(nothing, 0), i.compress(nothing, nothing),
        iter([]), iter(()), iter({}),
        iter(set()), iter({}.values()), iter({}.items()), iter(range(0)), iter(range(1 << 80)), iter(""),
        iter(b""), iter(str, ""),
        iter(bytearray()), reversed({}), iter(words), iter(collections.deque()),
        reversed(collections.deque()), reversed({}.values()),
        struct.iter_unpack("b", b""),
    )  # fmt: skip
    # 3.10, 3.12
    newer = [
        getattr(i, name)(nothing, *more)
        for name, more in (("pairwise", ()), ("batched", (1,)))
        if hasattr(i, name)
    ]
    for thing in (*makers, *newer):
        ITERATORS.add(type(thing))
        _EXACT[type(thing)] = _iterator
    for thing in ({}.keys(), {}.values(), {}.items(), words.keys(), words.values(), words.items()):
        _EXACT[type(thing)] = holder


# Whose place shows neither in themselves nor in what they hold.
_HIDDEN = frozenset(
    (
        itertools.cycle,
        itertools.islice,
        type(itertools.tee(())[0]),
        itertools.product,
        itertools.permutations,
        itertools.combinations,
        itertools.combinations_with_replacement,
    )
)
_learn_iterators()
HANDLERS.update(_EXACT)


def forget() -> None:
    """Hold no class of the script's any more. No walk can follow."""
    for table in (HANDLERS, _slots):
        table.clear()
    walk_classes.forget()
    walk_opaque.forget()
