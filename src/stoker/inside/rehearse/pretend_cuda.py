"""`torch.cuda` and its neighbours, as they would answer on a machine with GPUs;
names and numbers say that they are none."""

from __future__ import annotations

import contextlib
import types

from . import pretend
from .late import put
from .pretend import CPU, count, device_now, place, set_device_now
from .tell import CannotRehearse, once

NAME = "simulated GPU (rehearsal on a CPU)"
MEMORY = 80 << 30  # bytes; only shown
_NOTHING = """synchronize empty_cache ipc_collect manual_seed manual_seed_all seed seed_all set_rng_state
set_rng_state_all init _lazy_init reset_peak_memory_stats reset_max_memory_allocated reset_max_memory_cached
reset_accumulated_memory_stats reset_peak_host_memory_stats reset_accumulated_host_memory_stats
set_per_process_memory_fraction set_stream set_sync_debug_mode check_error caching_allocator_delete
caching_allocator_enable _sleep""".split()
_ZERO = """memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_cached
max_memory_cached utilization memory_usage temperature power_draw clock_rate device_memory_used
get_sync_debug_mode current_blas_handle initial_seed""".split()


def install(torch: object) -> None:
    """Put the answers in the place of torch's own."""
    cuda = torch.cuda
    answers = {
        "is_available": lambda: True,
        "device_count": count,
        "is_initialized": lambda: True,
        "_is_in_bad_fork": lambda: False,
        "current_device": device_now,
        "set_device": _set_device,
        "_exchange_device": _exchange,
        "_maybe_exchange_device": _exchange,
        "get_device_name": lambda device=None: NAME,
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_properties": lambda device=None: _properties(),
        "is_bf16_supported": lambda *a, **k: True,
        "is_tf32_supported": lambda: True,
        "mem_get_info": lambda device=None: (MEMORY, MEMORY),
        "memory_stats": lambda device=None: _Zeros(),
        "memory_snapshot": lambda *a, **k: [],
        "memory_stats_as_nested_dict": lambda device=None: _Zeros(),
        "host_memory_stats": _Zeros,
        "memory_summary": lambda *a, **k: "no GPU memory: this is a rehearsal on a CPU",
        "list_gpu_processes": lambda device=None: "",
        "get_arch_list": lambda: [],
        "get_gencode_flags": lambda: "",
        "can_device_access_peer": lambda *a: True,
        "is_current_stream_capturing": lambda: False,
        "get_rng_state": lambda device="cuda": torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state() for _ in range(count())],
        "get_allocator_backend": lambda: "native",
        "current_stream": lambda device=None: Stream(device),
        "default_stream": lambda device=None: Stream(device),
        "stream": _stream,
        "Stream": Stream,
        "Event": Event,
        "ExternalStream": Stream,
        "CUDAGraph": _no_graphs,
        "graph": _no_graphs,
        "cudart": _Cudart,
        "make_graphed_callables": _no_graphs,
    }
    answers.update({name: _always(None) for name in _NOTHING})
    answers.update({name: _always(0) for name in _ZERO})
    for home in (cuda, cuda.memory, cuda.random, cuda.streams, cuda.graphs):
        for name, answer in answers.items():
            if hasattr(home, name):
                put(home, name, answer)
    for name, made in (("Stream", Stream), ("Event", Event)):
        if hasattr(torch, name):
            put(torch, name, made)
    cuda.default_generators = tuple(torch.default_generator for _ in range(count()))
    _nvtx(cuda)
    _accelerator(torch)
    _old_types(torch)
    _defaults(torch)
    _generator(torch)
    _autocast(torch)
    _replicas(torch)
    _no_compiler(torch)
    if torch.version.cuda is None:
        torch.version.cuda = "12.8"
    parse = torch._C._nn._parse_to

    def parse_to(*args: object, **kwargs: object) -> object:
        args = tuple(
            torch.device("cuda", place(a)) if isinstance(a, int) and not isinstance(a, bool) and i == 0 else a
            for i, a in enumerate(args)
        )
        if isinstance(kwargs.get("device"), int):
            kwargs["device"] = torch.device("cuda", place(kwargs["device"]))
        return parse(*args, **kwargs)

    torch._C._nn._parse_to = parse_to


def _always(answer: object) -> object:
    """A function of its own for each name: torch keeps tables of its functions."""
    return lambda *args, **kwargs: answer


def _nothing(*args: object, **kwargs: object) -> None:
    """There is nothing to wait for, to empty or to seed."""


def _zero(*args: object, **kwargs: object) -> int:
    return 0


def _set_device(device: object) -> None:
    if isinstance(device, int) and device < 0:
        return  # as torch: a number below zero changes nothing
    where = place(device)
    if isinstance(where, int):
        set_device_now(where)


def _exchange(index: int) -> int:
    before = device_now()
    if index is not None and index >= 0:
        set_device_now(place(index))
    return before


def _properties() -> object:
    return types.SimpleNamespace(
        name=NAME,
        major=9,
        minor=0,
        total_memory=MEMORY,
        multi_processor_count=132,
        is_integrated=False,
        is_multi_gpu_board=False,
        max_threads_per_multi_processor=2048,
        warp_size=32,
        gcnArchName="",
        uuid="rehearsal",
        shared_memory_per_block=49152,
        regs_per_multiprocessor=65536,
        L2_cache_size=50 << 20,
    )


class _Zeros(dict):
    def __missing__(self, name: str) -> int:
        return 0


class _Cudart:
    def __getattr__(self, name: str) -> object:
        return lambda *args, **kwargs: 0


class Stream:
    """Work is done at once: each stream has always finished."""

    def __init__(self, device: object = None, priority: int = 0, **more: object) -> None:
        self._index, self.cuda_stream, self.priority, self.stream_id = device, 0, priority, 0

    @property
    def device(self) -> object:
        """The GPU it belongs to."""
        where = place(self._index) if self._index is not None else device_now()
        return pretend.torch.device("cuda", where if isinstance(where, int) else 0)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *said: object) -> None:
        return None

    def record_event(self, event: object = None) -> object:
        """The event (a new one, if none is given), with the time of now."""
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    wait_event = wait_stream = synchronize = _nothing


class Event:
    """Times are those of the CPU."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self._at = None

    def record(self, stream: object = None) -> None:
        """Now."""
        import time

        self._at = time.perf_counter()

    def elapsed_time(self, other: Event) -> float:
        return ((other._at or 0.0) - (self._at or 0.0)) * 1000

    def query(self) -> bool:
        return True

    wait = synchronize = _nothing


@contextlib.contextmanager
def _stream(stream: object) -> object:
    yield stream


def _no_graphs(*args: object, **kwargs: object) -> None:
    raise CannotRehearse("CUDA graphs cannot be rehearsed without a GPU")


def _nvtx(cuda: object) -> None:
    nvtx = cuda.nvtx
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        if hasattr(nvtx, name):
            put(nvtx, name, _zero)
    nvtx.range = lambda *args, **kwargs: contextlib.nullcontext()


def _accelerator(torch: object) -> None:
    here = getattr(torch, "accelerator", None)
    if here is None:
        return
    answers = {
        "is_available": lambda: True,
        "device_count": count,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "current_device_index": device_now,
        "current_device_idx": device_now,
        "set_device_index": _set_device,
        "set_device_idx": _set_device,
        "synchronize": _nothing,
        "current_stream": lambda device=None: Stream(device),
        "set_stream": _nothing,
        "empty_cache": _nothing,
        "memory_allocated": _zero,
        "max_memory_allocated": _zero,
        "memory_reserved": _zero,
        "max_memory_reserved": _zero,
        "memory_stats": lambda device=None: _Zeros(),
        "reset_peak_memory_stats": _nothing,
        "reset_accumulated_memory_stats": _nothing,
    }
    for name, answer in answers.items():
        if hasattr(here, name):
            put(here, name, answer)
    if hasattr(here, "device_index"):
        here.device_index = _on_device


@contextlib.contextmanager
def _on_device(index: object) -> object:
    before = _exchange(-1 if index is None else index)
    try:
        yield
    finally:
        set_device_now(before)


def _old_types(torch: object) -> None:
    """torch.cuda.FloatTensor and its like."""

    class Kind(type):
        def __instancecheck__(cls, value: object) -> bool:
            return (
                isinstance(value, torch.Tensor)
                and isinstance(pretend.place_of(value), int)
                and value.dtype == cls._dtype
            )

        def __call__(cls, *args: object, **kwargs: object) -> object:
            return pretend.mark(cls._plain(*args, **kwargs), place("cuda"))

    for name in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Byte", "Char", "Bool"):
        plain = getattr(torch, f"{name}Tensor", None)
        if plain is not None:
            put(
                torch.cuda,
                f"{name}Tensor",
                Kind(f"{name}Tensor", (), {"_plain": plain, "_dtype": plain.dtype, "dtype": plain.dtype}),
            )


def _defaults(torch: object) -> None:
    set_type, get = torch.set_default_tensor_type, getattr(torch, "get_default_device", None)

    def set_default_device(device: object) -> None:
        where = CPU if device is None else place(device)
        pretend.default["place"] = CPU if where is None else where

    def set_default_tensor_type(kind: object) -> None:
        said = kind if isinstance(kind, str) else ""
        plain = getattr(kind, "_plain", None) or (said.replace("torch.cuda.", "torch.") if said else kind)
        pretend.default["place"] = place("cuda") if plain is not kind and plain != said else CPU
        set_type(plain)

    def get_default_device() -> object:
        where = pretend.default["place"]
        return torch.device("cuda", where) if isinstance(where, int) else get()

    put(torch, "set_default_device", set_default_device)
    put(torch, "set_default_tensor_type", set_default_tensor_type)
    if get is not None:
        put(torch, "get_default_device", get_default_device)


def _generator(torch: object) -> None:
    plain = torch.Generator

    class Kind(type(plain)):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, plain)

    class Generator(plain, metaclass=Kind):
        def __new__(cls, device: object = CPU) -> object:
            made = plain.__new__(cls)
            made._rehearsed = place(device)
            return made

        def __init__(self, device: object = CPU) -> None:
            """As torch's."""

        @property
        def device(self) -> object:
            where = self._rehearsed
            return torch.device("cuda", where) if isinstance(where, int) else torch.device(CPU)

    Generator.__name__, Generator.__qualname__, Generator.__module__ = "Generator", "Generator", "torch"
    put(torch, "Generator", Generator)


def _autocast(torch: object) -> None:
    from torch.amp import autocast_mode

    begin = autocast_mode.autocast.__init__

    def init(
        self: object,
        device_type: str = "cuda",
        dtype: object = None,
        enabled: bool = True,
        cache_enabled: object = None,
    ) -> None:
        if str(device_type).partition(":")[0] == "cuda":
            if device_type != "cuda":
                raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
            dtype = dtype or torch.float16
            if enabled:
                once("autocast", str(dtype), dtype=str(dtype))
            device_type = CPU
        begin(self, device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

    autocast_mode.autocast.__init__ = init
    asked = torch.is_autocast_enabled

    def is_autocast_enabled(device_type: str = "cuda") -> bool:
        return asked(CPU if device_type == "cuda" else device_type)

    put(torch, "is_autocast_enabled", is_autocast_enabled)


def _replicas(torch: object) -> None:
    """What DataParallel does between GPUs, in operations that autograd knows."""
    import sys

    modules = sys.modules

    def to(tensor: object, where: int) -> object:
        return tensor if pretend.place_of(tensor) == where else pretend.mark(tensor.clone(), where, over=True)

    class Scatter:
        @staticmethod
        def apply(devices: object, sizes: object, dim: int, tensor: object) -> tuple:
            with pretend.off():
                pieces = tensor.split(sizes, dim) if sizes else tensor.chunk(len(devices), dim)
                pieces = [piece.clone() for piece in pieces]
            return tuple(
                pretend.mark(piece, place(device), over=True)
                for piece, device in zip(pieces, devices)  # noqa: B905
            )  # Python 3.9

    class Gather:
        @staticmethod
        def apply(device: object, dim: int, *tensors: object) -> object:
            if any(pretend.place_of(t) == CPU for t in tensors):
                raise AssertionError("Gather function not implemented for CPU tensors")
            with pretend.off():
                if dim == 0 and all(t.dim() == 0 for t in tensors):
                    once(
                        "lint",
                        "gather",
                        text="the module in DataParallel returns a scalar per GPU; use .mean() of the result",
                    )
                    tensors = tuple(t.view(1) for t in tensors)
                out = torch.cat(tensors, dim)
            return pretend.mark(out, CPU if device in (CPU, -1) else place(device), over=True)

    def broadcast(tensors: object, devices: object, detach: bool = False) -> list:
        with pretend.off():
            made = [[t if pretend.place_of(t) == place(d) else t.clone() for t in tensors] for d in devices]
        for each, d in zip(made, devices):  # noqa: B905
            for tensor in each:
                pretend.mark(tensor, place(d), over=True)
        return made

    modules["torch.nn.parallel.scatter_gather"].Scatter = Scatter
    modules["torch.nn.parallel.scatter_gather"].Gather = Gather
    modules["torch.nn.parallel.replicate"]._broadcast_coalesced_reshape = broadcast
    for name, answer in (
        ("_check_balance", _nothing),
        ("_get_available_device_type", lambda: "cuda"),
        ("_get_device_attr", lambda get: get(torch.cuda)),
        ("_get_all_device_indices", lambda: list(range(count()))),
        ("get_current_device_index", device_now),
    ):
        for home in (
            "torch._utils",
            "torch.nn.parallel.data_parallel",
            "torch.nn.parallel.parallel_apply",
            "torch.nn.parallel.scatter_gather",
            "torch.nn.parallel.replicate",
        ):
            if hasattr(modules.get(home), name):
                put(modules[home], name, answer)


def _no_compiler(torch: object) -> None:
    def compile(model: object = None, **how: object) -> object:
        once("compile")
        return model if model is not None else lambda function: function

    put(torch, "compile", compile)
    torch.nn.Module.compile = lambda self, *args, **kwargs: once("compile")
