"""Every private part of CPython, numpy and torch that exact resume leans on, in one place, and a self test
that asks whether this version still has them. A version that fails a test is not supported:
the run goes on plain and says so.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import importlib
import itertools
import random
import sys
from array import array

from ...looks import isinstance

PYTHONS = (3, 9), (3, 13)  # the first and the last CPython whose frames, bytecode and objects are known
_WORDS = 624  # of a Mersenne twister; its state is these words and a position
_RAW = 4 * _WORDS + 4  # bytes
_HEAD = object.__basicsize__  # of every object: where the fields of a C object begin


# ---- random: the raw state, 40 times cheaper than getstate()

# the global Random, and a view of its state in memory: making a view costs ten times a read
_python_seen: list = [None, None]


def python_rng(source: random.Random | None = None) -> tuple[bytes, object]:
    """State of `random` (or of one Random): position and words as they lie in memory, and the second half of
    a pair of Gaussians."""
    if source is not None:
        return ctypes.string_at(id(source) + _HEAD, _RAW), source.gauss_next
    source = random._inst
    if source is not _python_seen[0]:
        _python_seen[:] = source, (ctypes.c_char * _RAW).from_address(id(source) + _HEAD)
    return _python_seen[1].raw, source.gauss_next


def set_python_rng(state: tuple, source: random.Random | None = None) -> None:
    words = array("I", state[0])
    (random._inst if source is None else source).setstate((3, (*words[1:], words[0]), state[1]))


def python_views(source: random.Random) -> object:
    """Its position and first word, as one number that is read where it lies."""
    return ctypes.c_uint64.from_address(id(source) + _HEAD)


# ---- numpy: the global legacy generator

_numpy_seen: list = [None, b"", None]  # the bit generator, its raw state, what was made of it


def numpy_rng() -> tuple | None:
    """State of `numpy.random`, None when numpy is not imported:
    (words, position, has_gauss, gauss), or a dictionary for other bit generators."""
    numpy = sys.modules.get("numpy.random")
    if numpy is None or not hasattr(numpy, "mtrand"):
        return None
    rand = numpy.mtrand._rand
    bits = rand._bit_generator
    if type(bits).__name__ != "MT19937":
        return ("other", repr(rand.get_state(legacy=False)))
    if bits is not _numpy_seen[0]:
        _numpy_seen[:] = bits, b"", None
    raw = ctypes.string_at(bits.ctypes.state_address, _RAW)
    if raw != _numpy_seen[1] or _numpy_seen[2][2]:  # a Gaussian kept aside can be used up without a new draw
        state = rand.get_state(legacy=False)
        _numpy_seen[1] = raw
        _numpy_seen[2] = (
            state["state"]["key"].tobytes(),
            int(state["state"]["pos"]),
            int(state["has_gauss"]),
            float(state["gauss"]),
        )
    return _numpy_seen[2]


def set_numpy_rng(state: tuple) -> None:
    import numpy
    if state[0] == "other":
        raise ValueError("numpy.random uses a bit generator other than MT19937")
    words, position, has_gauss, gauss = state
    numpy.random.set_state(
        ("MT19937", numpy.frombuffer(words, dtype=numpy.uint32), position, has_gauss, gauss)
    )


def numpy_views(bits: object) -> tuple:
    """Position and first word of a Mersenne twister of numpy's, as numbers that are read where they lie."""
    base = bits.ctypes.state_address
    return ctypes.c_uint32.from_address(base + 4 * _WORDS), ctypes.c_uint32.from_address(base)


# ---- the garbage collector

_untrack, _track = (
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)((f"PyObject_GC_{name}", ctypes.pythonapi))
    for name in ("UnTrack", "Track")
)


def freeze_all_but(things: list) -> None:
    """As gc.freeze(), but these are as before:
    the garbage collector shows and collects them, in this order, as its youngest."""
    import gc
    enabled = gc.isenabled()
    gc.disable()
    try:
        gc.freeze()
        # none twice: that ends the process
        _anew(list({id(thing): None for thing in things if gc.is_tracked(thing)}))
    finally:
        if enabled:
            gc.enable()


def _anew(addresses: list) -> None:
    """In one go: a signal handler would meet what is not tracked. By address:
    ctypes asks an object for its `__class__`."""
    collections.deque(itertools.chain(map(_untrack, addresses), map(_track, addresses)), 0)


def _test_collector() -> str:
    import gc
    probe: list = [[]]
    _untrack(id(probe))
    hidden = not gc.is_tracked(probe)
    _track(id(probe))
    _anew([id(probe)])
    return "" if hidden and gc.is_tracked(probe) else "Stoker cannot control the garbage collector"


# ---- running frames

_FRAME_AT = 24  # in a frame object, from Python 3.11 on: where its inner frame lies
_FRAME_WORDS = 9  # of an inner frame, before its variables and its value stack; the same from 3.11 to 3.13


def in_frame(frame: object, things: list) -> list:
    """Those of `things` whose addresses lie among the variables and on the value stack of a running frame.
    A place of the stack that is not in use may still have an old one:
    something else may lie there now, and is among them too."""
    code = frame.f_code
    if sys.version_info < (3, 11):  # noqa: UP036 - it runs there; all of it lies in the object
        at, words = id(frame), frame.__sizeof__() // 8
    else:
        at = ctypes.c_size_t.from_address(id(frame) + _FRAME_AT).value
        words = (
            _FRAME_WORDS + len({*code.co_varnames, *code.co_cellvars, *code.co_freevars}) + code.co_stacksize
        )
    there = set((ctypes.c_size_t * words).from_address(at))
    return [thing for thing in things if id(thing) in there]


def _test_frame_memory() -> str:
    made: list = []

    def make() -> list:
        made.append([])
        return made[-1]

    def look() -> bool:
        return in_frame(sys._getframe(1), [[], made[-1], []]) == [made[-1]]
    return "" if (make(), look())[1] else "Python's frames have an unknown memory layout"


# ---- sets: the table, which says in which order they are gone through, and what later changes make of it

def set_table(thing: set) -> tuple:
    """(mask, finger, places of its values in their order, places where one was taken out);
    the finger is where pop() goes on."""
    # fill, used; the hash of a frozenset
    _, _, mask, table, _, finger = (ctypes.c_ssize_t * 6).from_address(id(thing) + _HEAD)
    words = (ctypes.c_ssize_t * (2 * mask + 2)).from_address(table)[:]
    used = [n for n, (key, code) in enumerate(zip(words[::2], words[1::2])) if key]  # noqa: B905
    return (
        mask,
        finger,
        *(
            array("q", [n for n in used if (words[2 * n + 1] == -1) is out]).tobytes()
            for out in (False, True)
        ),
    )


def lay_set(thing: set, values: list, table: tuple) -> None:
    """Make `thing` a set of these plain values, with such a table, of a life with equal hashes."""
    mask, finger, there, out = table
    thing.clear()
    thing.update(set(range(mask // 2)) if mask > 7 else (0,))  # the next power of 2 of twice what comes
    collections.deque(map(thing.discard, list(thing)), 0)
    head = (ctypes.c_ssize_t * 6).from_address(id(thing) + _HEAD)
    if head[2] != mask:
        raise ValueError("a set has an unexpected table size")
    words = (ctypes.c_ssize_t * (2 * mask + 2)).from_address(head[3])
    gone = next(key for key in words[::2] if key)  # what stands where a value was taken out
    words[:] = [0] * len(words)
    for n in array("q", out):
        words[2 * n], words[2 * n + 1] = gone, -1
    for n, value in zip(array("q", there), values):  # noqa: B905
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
        words[2 * n], words[2 * n + 1] = id(value), hash(value)
    head[0], head[1], head[5] = len(values) + len(out) // 8, len(values), finger


def _test_sets() -> str:
    one, two = set(range(200)), set()
    one.pop()
    lay_set(two, list(one), set_table(one))
    one, two = one | {1000, 77_777}, two | {1000, 77_777}
    same = list(one) == list(two) and one.pop() == two.pop()
    return "" if same else "Python's sets have an unknown memory layout"


# ---- torch: generators as bytes

def torch_rng(generator: object = None) -> bytes:
    """State of torch's CPU generator, or of `generator`."""
    state = (generator or sys.modules["torch"].default_generator).get_state()
    return (ctypes.c_char * state.numel()).from_address(state.data_ptr()).raw


def set_torch_rng(state: bytes, generator: object = None) -> None:
    import torch
    tensor = torch.frombuffer(bytearray(state), dtype=torch.uint8).clone()
    (torch.default_generator if generator is None else generator).set_state(tensor)


def set_versions(tensors: list, versions: list) -> None:
    """How often each tensor was written to, as `tensor._version` tells it.
    The number of tensors that look at one memory is one."""
    sys.modules["torch"]._C._autograd._unsafe_set_version_counter(tuple(tensors), tuple(versions))


def _test_versions() -> str:
    one = sys.modules["torch"].zeros(2)
    set_versions([one], [5])
    return "" if one._version == 5 else "Stoker cannot set the version counters of tensors"


def rngs() -> tuple:
    """The three global generators that a data pipeline draws from:
    (python, numpy, torch), marshal-able. About 10 us."""
    return python_rng(), numpy_rng(), torch_rng()


def set_rngs(states: tuple) -> None:
    """Put states of `rngs()` back; a None among them leaves that generator as it is."""
    for state, put in zip(states, (set_python_rng, set_numpy_rng, set_torch_rng)):  # noqa: B905
        if state is not None:
            put(state)


# ---- torch: kernels of its operators

def aten_names() -> list:
    """Names of all operators, "aten::add.Tensor"."""
    return sys.modules["torch"]._C._dispatch_get_all_op_names()


def tags_of(name: str) -> object:
    """The tags of an operator; empty for one that Python cannot call."""
    base, _, overload = name.partition(".")
    known = sys.modules["torch"]._C._get_operation_overload(base, overload)
    return known[-1] if known else ()


def has_kernel(name: str, device: str) -> bool:
    """Whether an operator has a kernel of its own for "CPU" or "CUDA"."""
    return sys.modules["torch"]._C._dispatch_has_kernel_for_dispatch_key(name, device)


def kernel(name: str, device: str) -> tuple:
    """(the operator, a function that calls the kernel which it has now for this device,
    past everything else)."""
    torch = sys.modules["torch"]
    base, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, base.partition("::")[2]), overload or "default")
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, device))
    return op, functools.partial(torch.library.get_kernel(op, device).call_boxed, keys)


# ---- torch: what other files use by name

TORCH_PARTS = """
    _C.DisableTorchFunction _C.DispatchKey _C.DispatchKeySet _C.StorageBase._cdata _C.TensorBase
    _C._dispatch_get_all_op_names _C._dispatch_has_kernel_for_dispatch_key _C._functorch.maybe_current_level
    _C._get_operation_overload _functorch.apis _functorch.eager_transforms _tensor_str.PRINT_OPTS
    _tensor_str._str autograd.forward_ad._current_level is_autocast_enabled library.Library._destroy
    library.get_kernel nn.Module._call_impl nn.modules.lazy.LazyModuleMixin._infer_parameters
    nn.modules.module._global_forward_hooks nn.utils.clip_grad nn.utils.stateless._functional_call
    optim.Optimizer._patch_step_function optim.Optimizer.profile_hook_step optim.swa_utils.AveragedModel
    overrides._get_current_function_mode_stack utils._python_dispatch._get_current_dispatch_mode_stack
    utils._pytree.tree_leaves utils.data._utils.pin_memory.pin_memory utils.hooks.RemovableHandle.next_id
""".split()


def use_count(tensor: object) -> int | None:
    """How often C++ holds a tensor, Python's own hold included; None: this torch does not tell."""
    count = getattr(tensor, "_use_count", None)
    return count() if count is not None else None


# ---- switches of the whole process, and what is called in it

SWITCHES = (
    "mkldnn_enabled",
    "nnpack_enabled",
    "flash_sdp_enabled",
    "mem_efficient_sdp_enabled",
    "math_sdp_enabled",
    "cudnn_sdp_enabled",
    "math_sdp_allow_fp16_bf16_reduction",
    "cublas_allow_fp16_reduced_precision_reduction",
    "cublas_allow_bf16_reduced_precision_reduction",
    "qengine",
    "warnAlways",
    "deterministic_fill_uninitialized_memory",
    "deterministic_algorithms_warn_only",
)
VARIABLES = (("torch.hub", "_hub_dir"), ("torch.distributions.distribution", "Distribution._validate_args"),
             ("torch.utils.checkpoint", "_checkpoint_debug_enabled"))  # the same, of modules


def torch_switches() -> list:
    """(name, setting) of those that this version has."""
    c = sys.modules["torch"]._C
    getters = [(name, getattr(c, f"_get_{name}", None)) for name in SWITCHES] + [
        (name, getattr(c, name, None)) for name in ("is_anomaly_enabled", "_is_multithreading_enabled")]
    found = [(name.lstrip("_"), str(get())) for name, get in getters if get is not None]
    for module, name in VARIABLES:
        thing = functools.reduce(
            lambda thing, word: getattr(thing, word, None), name.split("."), sys.modules.get(module)
        )
        found += [(f"{module[6:]}.{name}", str(thing))] if thing is not None else []
    return found


def registered(kind: type) -> list:
    """Weak references to the classes that were registered with an abstract one."""
    return list(sys.modules["_abc"]._get_dump(kind)[0])


def torch_modes() -> list:
    """Modes that torch calls for each function or operator, outermost first."""
    torch = sys.modules["torch"]
    return [
        *torch.overrides._get_current_function_mode_stack(),
        *torch.utils._python_dispatch._get_current_dispatch_mode_stack(),
    ]


# ---- torch.utils.data: what loader.py patches and calls

LOADER_PARTS = {
    "DataLoader": ("__iter__", "_get_iterator", "_index_sampler", "_auto_collation"),
    "_BaseDataLoaderIter": ("__init__", "__next__", "_next_index", "_reset"),
    "_SingleProcessDataLoaderIter": ("__init__", "_next_data"),
    "_MultiProcessingDataLoaderIter": (
        "__init__",
        "_reset",
        "_get_data",
        "_process_data",
        "_try_put_index",
        "_shutdown_workers",
    ),
    "_DatasetKind": ("Map", "Iterable", "create_fetcher"),
}
ITER_FIELDS = ("_sampler_iter", "_base_seed", "_num_yielded", "_dataset_kind", "_index_sampler")
WORKER_FIELDS = (
    "_task_info",
    "_send_idx",
    "_rcvd_idx",
    "_tasks_outstanding",
    "_worker_queue_idx_cycle",
    "_prefetch_factor",
    "_workers",
    "_worker_result_queue",
    "_data_queue",
    "_index_queues",
    "_workers_status",
)
WORKER_WORDS = (
    "dataset_kind",
    "*",
    "index_queue",
    "data_queue",
    "done_event",
    "auto_collation",
    "collate_fn",
    "drop_last",
    "base_seed",
    "init_fn",
    "worker_id",
)  # the first arguments of a worker's loop, in this order
# the second: how the data set is found in it
DATASET_WORDS = {"dataset": lambda given: given, "dataset_holder": lambda given: given[0]}
METHOD_WORDS = {
    "_reset": ("self", "loader", "first_iter"),
    "_get_data": ("self",),
    "_process_data": ("self", "data"),
    "_try_put_index": ("self",),
    "_next_index": ("self",),
}


def data_module(name: str) -> object:
    return importlib.import_module(f"torch.utils.data.{name}")


def dataset_given(loop: object, given: object) -> object:
    """The data set that a worker's loop is given.
    From torch 2.15 on it comes in a list, which the loop empties."""
    return DATASET_WORDS[_words(loop)[1]](given)


# ---- filters of warnings, methods of C types

def filters_changed() -> None:
    """The list of filters was changed in place: what was looked up before is looked up anew."""
    sys.modules["warnings"]._filters_mutated()


def _test_c_types() -> str:
    import datetime

    from ...entry.methods import replace_in_type
    old = datetime.date.__dict__["today"]
    try:
        replace_in_type(datetime.date, "today", lambda cls: "ours")
        return "" if datetime.date.today() == "ours" else "the class methods of datetime cannot be replaced"
    finally:
        import gc
        namespace, = (each for each in gc.get_referents(datetime.date.__dict__) if type(each) is dict)
        namespace["today"] = old
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime.date))


# ---- the self test

def self_test() -> str:
    """"" when all parts are as we know them, else the sentence that says which is not;
    a few milliseconds, draws nothing."""
    for test in (
        _test_interpreter,
        _test_frames,
        _test_frame_memory,
        _test_sets,
        _test_collector,
        _test_python_rng,
        _test_numpy_rng,
        _test_c_types,
        _test_parts,
        _test_torch_rng,
        _test_versions,
        _test_kernels,
        _test_graphs,
        _test_loader,
    ):
        try:
            wrong = test()
        except Exception as e:
            wrong = f"{test.__name__[6:].replace('_', ' ')}: {type(e).__name__}: {e}"
        if wrong:
            torch = sys.modules.get("torch")
            return (
                f"exact resume does not support Python {sys.version.split()[0]} with torch "
                f"{getattr(torch, '__version__', '?')}"
                f" ({wrong})"
            )
    return ""


def _test_interpreter() -> str:
    if sys.implementation.name != "cpython":
        return "not CPython"
    if (
        not hasattr(sys.modules.get("warnings"), "_filters_mutated")
        or type(registered(collections.abc.Sized)) is not list
    ):
        return "this Python stores the state of its modules `warnings` or `abc` in an unknown form"
    if getattr(sys, "_is_gil_enabled", lambda: True)() is False:
        return "this Python has no global interpreter lock"
    if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        return (
            f"only CPython {PYTHONS[0][0]}.{PYTHONS[0][1]} to {PYTHONS[1][0]}.{PYTHONS[1][1]} are supported"
        )
    return "" if _HEAD == 16 else "unknown object layout"


def _test_frames() -> str:
    """What lies on a value stack must be told right:
    an image in the middle of an expression would lose it."""
    from . import bytecode

    def held() -> bool:
        return bytecode.holds_values(sys._getframe(1), False)

    between = [held()]
    for _ in range(1):
        told = held()
        between.append(told)
    within = [len(between), held()][1], max(len(""), held())
    return "the bytecode has an unknown form" if any(between) or not all(within) else ""


def _test_python_rng() -> str:
    mine = random.Random(5)
    mine.gauss(0, 1)
    state = python_rng(mine)
    words = mine.getstate()
    if array("I", state[0]).tolist() != [words[1][-1], *words[1][:-1]] or state[1] != words[2]:
        return "this Python stores the state of `random` in an unknown form"
    other = random.Random(6)
    set_python_rng(state, other)
    return "" if other.getstate() == words else "the state of `random` cannot be restored"


def _test_numpy_rng() -> str:
    if "numpy.random" not in sys.modules:
        return ""
    import numpy
    bits = numpy.random.RandomState(3)._bit_generator
    key = bits.state["state"]
    raw = array("I", ctypes.string_at(bits.ctypes.state_address, _RAW))
    if list(raw[:-1]) != key["key"].tolist() or raw[-1] != key["pos"]:
        return "this NumPy stores the state of `numpy.random` in an unknown form"
    return (
        "" if hasattr(numpy.random.mtrand._rand, "_bit_generator") else "numpy.random has no global generator"
    )


def _test_torch_rng() -> str:
    import torch
    one, two = torch.Generator(), torch.Generator()
    one.manual_seed(4)
    set_torch_rng(torch_rng(one), two)
    return "" if torch_rng(one) == torch_rng(two) else "the state of a torch generator cannot be restored"


def _test_parts() -> str:
    for path in TORCH_PARTS:
        thing, words = sys.modules["torch"], path.split(".")
        for n, word in enumerate(words):
            if not hasattr(thing, word):
                try:
                    importlib.import_module("torch." + ".".join(words[:n + 1]))
                except ImportError:
                    return f"torch has no {path}"
            thing = getattr(thing, word)
    step = sys.modules["torch"].optim.Optimizer._patch_step_function.__code__
    return (
        ""
        if {"profile_hook_step", "hooked"} <= {*step.co_names, *step.co_consts}
        else "optimizers call step hooks in an unknown way"
    )


def _test_kernels() -> str:
    torch = sys.modules["torch"]
    real = kernel("aten::_local_scalar_dense", "CPU")[1]
    if real(torch.tensor(1.5)) != 1.5:
        return "Stoker cannot call the kernels of torch"
    shaped = torch.Tag.dynamic_output_shape
    return (
        ""
        if shaped in tags_of("aten::nonzero") and has_kernel("aten::nonzero", "CPU")
        else "operators of torch have unknown tags"
    )


def _test_graphs() -> str:
    torch = sys.modules["torch"]
    with torch.inference_mode(False), torch.enable_grad():
        node = torch.ones(1, requires_grad=True).exp().exp().grad_fn.next_functions[0][0]
    saved = node._raw_saved_result
    if saved.unpack_hook is not None or not isinstance(saved.data, torch.Tensor):
        return "Stoker cannot inspect the saved tensors of a graph"
    return (
        ""
        if isinstance(node.metadata, dict) and hasattr(node, "register_prehook")
        else "Stoker cannot watch the nodes of a graph"
    )


def _test_loader() -> str:
    module = data_module("dataloader")
    for name, parts in LOADER_PARTS.items():
        for part in parts:
            if not hasattr(getattr(module, name), part):
                return f"DataLoader has no {name}.{part}"
    if not all(
        hasattr(getattr(data_module("_utils.fetch"), f"_{kind}DatasetFetcher"), "fetch")
        for kind in ("Map", "Iterable")
    ):
        return "DataLoader workers run in an unknown way"
    code = _torchs(module._MultiProcessingDataLoaderIter.__init__)
    if "_worker_loop" not in code.co_names or "_utils" not in code.co_names:
        return "DataLoader workers start in an unknown way"
    kind, data, *rest = _words(data_module("_utils.worker")._worker_loop)[:len(WORKER_WORDS)]
    if (kind, "*", *rest) != WORKER_WORDS or data not in DATASET_WORDS:
        return "DataLoader workers get unknown arguments"
    for name, words in METHOD_WORDS.items():
        if _words(getattr(module._MultiProcessingDataLoaderIter, name))[:len(words)] != words:
            return f"DataLoader iterators have an unknown {name}"
    own = module._MultiProcessingDataLoaderIter._reset, module._BaseDataLoaderIter.__init__
    known = {*code.co_names, *(name for each in own for name in _torchs(each).co_names)}
    lost = [name for name in (*ITER_FIELDS, *WORKER_FIELDS) if name not in known]
    return f"DataLoader iterators have no {lost[0]}" if lost else ""


def _torchs(function: object) -> object:
    """The code of a function of torch's: settings stand around some."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function.__code__


def _words(function: object) -> tuple:
    code = _torchs(function)
    return code.co_varnames[:code.co_argcount]
