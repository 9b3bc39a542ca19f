"""Tensors that say they are on a GPU, and are not:
where a tensor is supposed to be is written on its storage, and what a GPU would refuse (operands in two
places, numpy of a GPU tensor, an index that does not exist) is refused here with the same words."""

from __future__ import annotations

import os
import threading

from .tell import once, place_in_script

torch = None  # the script's, set by `install`
CPU = "cpu"
current = threading.local()
default = {"place": CPU}
loading = {"unmapped": False}  # inside of a torch.load without map_location
_MODE = None

# Takes operands from several places, or only looks at sizes.
MIXED = frozenset(
    """backward copy_ __set__ type_as expand_as view_as reshape_as resize_as_ broadcast_tensors __deepcopy__
set_ is_set_to ctc_loss result_type is_same_size can_cast __reduce_ex__ __setstate__ register_hook grad
__setitem__ index_put_ index_put __getitem__ index promote_types _pack_padded_sequence _pad_packed_sequence
lift_fresh is_tensor set_data embedding_renorm_ __contains__ broadcast_shapes _is_view
_has_compatible_shallow_copy_type swap_tensors _record_function_enter_new _record_function_exit storage_offset
requires_grad_ _group_tensors_by_device_and_dtype _amp_foreach_non_finite_check_and_unscale_
_amp_update_scale_ multi_head_attention_forward tensor_split split_with_sizes repeat_interleave _assert_async
handle_torch_function""".split()
)

RECURRENT = frozenset(("lstm", "gru", "rnn_tanh", "rnn_relu"))  # the sizes of packed batches are on the CPU


def count() -> int:
    """How many GPUs are pretended; fewer where the script itself hides some."""
    made = max(1, int(os.environ.get("STOKER_REHEARSE") or 1))
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return (
        made
        if seen is None
        else min(made, len([each for each in seen.split(",") if each.strip() not in ("", "-1")]))
    )


def device_now() -> int:
    return getattr(current, "index", 0)


def set_device_now(index: int) -> None:
    current.index = index


def place(device: object) -> object:
    """Where `device` (text, number, torch.device) is:
    "cpu", the index of a pretended GPU, or None for what is not pretended (meta)."""
    if isinstance(device, bool) or device is None:
        return None
    if isinstance(device, int):
        return _checked(device)
    if isinstance(device, str):
        kind, _, index = device.partition(":")
    else:
        kind, index = getattr(device, "type", ""), getattr(device, "index", None)
    if kind == "cpu":
        return CPU
    if kind != "cuda":
        return None
    if index in (None, ""):
        return _checked(device_now())
    return _checked(int(index))


def _checked(index: int) -> int:
    if not 0 <= index < count():
        raise RuntimeError(
            f"CUDA error: invalid device ordinal: cuda:{index} is used, but the rehearsal has "
            f"{count()} GPU{'s' * (count() != 1)} (0{f' to {count() - 1}' if count() > 1 else ''})"
        )
    return index


def place_of(tensor: object) -> object:
    """Where this tensor is supposed to be; None if nobody said."""
    try:
        return getattr(tensor.untyped_storage(), "_rehearsed", None)
    except Exception:  # sparse, fake, functional: no storage
        return None


def mark(out: object, where: object, over: bool = False) -> object:
    """Write on the storages of `out` (tensors, also within containers) where they are,
    unless it stands there."""
    if where is None:
        return out
    for tensor in tensors_in(out):
        try:
            storage = tensor.untyped_storage()
            if over or not hasattr(storage, "_rehearsed"):
                storage._rehearsed = where
        except Exception:
            continue
    return out


def pin(tensor: object) -> None:
    """This CPU tensor is in pinned memory."""
    try:
        tensor.untyped_storage()._rehearsed_pinned = True
    except Exception:
        pass


def tensors_in(value: object, depth: int = 3) -> list:
    """The tensors in lists, tuples and dicts, so many levels deep."""
    if isinstance(value, torch.Tensor):
        return [value]
    if depth and isinstance(value, (list, tuple)):
        return [t for each in value for t in tensors_in(each, depth - 1)]
    if depth and isinstance(value, dict):
        return [t for each in value.values() for t in tensors_in(each, depth - 1)]
    return []


def name_of(where: object) -> str:
    return f"cuda:{where}" if isinstance(where, int) else str(where)


def moved(before: object, out: object, where: object) -> object:
    """`out` came of a move of `before` to `where`: on a GPU that is other memory."""
    was = place_of(before)
    if where is None or where == was or (was is None and where == CPU):
        return mark(out, was if where is None else where)
    if _shares(before, out):
        out = out.clone()
    return mark(out, where, over=True)


def _shares(a: object, b: object) -> bool:
    try:
        return a is b or a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    except Exception:
        return False


def call(func: object, args: tuple, kwargs: dict) -> object:
    """One call of torch, as the script sees it."""
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__"):
        return _property(func, name, args)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(func, args, kwargs)
    return _general(func, name, args, kwargs)


def _general(func: object, name: str, args: tuple, kwargs: dict) -> object:
    wanted = None
    if kwargs.get("device") is not None:
        wanted = place(kwargs["device"])
        if wanted is not None:
            kwargs = {**kwargs, "device": CPU}
        else:
            return func(*args, **kwargs)
    given = tensors_in(args) + (tensors_in(kwargs) if kwargs else [])
    where = _common(name, given) if given else None
    if name == "pin_memory" or kwargs.get("pin_memory"):
        kwargs = {**kwargs, "pin_memory": False}
    if wanted is None and not given:
        wanted = default["place"]
    if wanted is None:
        wanted = where
    _check_generator(kwargs.get("generator"), wanted)
    out = _with_half(func, args, kwargs)
    return mark(out, wanted) if out is not None else out


def _common(name: str, given: list) -> object:
    """Where the operands are. Raises what a GPU would, where they are in two places."""
    where, small = None, None
    if name in MIXED:
        return place_of(given[0])
    for tensor in given:
        seen = place_of(tensor)
        if seen is None or (name in RECURRENT and tensor.dtype == torch.int64):
            continue
        if seen == CPU and tensor.dim() == 0:
            small = seen
            continue
        if where is not None and seen != where:
            first, second = sorted((name_of(where), name_of(seen)), key=lambda n: n == CPU)
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, {first} "
                f"and {second}! (in {name})"
            )
        where = seen
    return where if where is not None else small


def _check_generator(generator: object, where: object) -> None:
    if generator is None or where is None:
        return
    has = "cuda" if isinstance(getattr(generator, "_rehearsed", CPU), int) else CPU
    needs = "cuda" if isinstance(where, int) else CPU
    if has != needs:
        raise RuntimeError(f"Expected a '{needs}' device type for generator but found '{has}'")


def _with_half(func: object, args: tuple, kwargs: dict) -> object:
    """GPUs have kernels in half precision that CPUs lack: there the sum is done in single precision."""
    try:
        return func(*args, **kwargs)
    except RuntimeError as e:
        if "not implemented for 'Half'" not in str(e) or getattr(func, "__name__", "").endswith("_"):
            raise

    def up(value: object) -> object:
        if isinstance(value, torch.Tensor):
            return value.float() if value.dtype == torch.float16 else value
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            return type(value)(up(each) for each in value)
        return value

    out = func(*up(args), **{k: up(v) for k, v in kwargs.items()})
    return out.half() if isinstance(out, torch.Tensor) and out.dtype == torch.float32 else out


def _property(func: object, way: str, args: tuple) -> object:
    name = getattr(getattr(func, "__self__", None), "__name__", "")
    if way == "__set__" or name not in ("device", "is_cuda", "is_cpu", "grad", "data"):
        return func(*args)
    if name == "grad":
        out = func(*args)
        return out if out is None else mark(out, place_of(args[0]))
    where = place_of(args[0])
    if not isinstance(where, int):
        return func(*args)
    if name == "device":
        return torch.device("cuda", where)
    return func(*args) if name == "data" else name == "is_cuda"


def _to(func: object, args: tuple, kwargs: dict) -> object:
    tensor, rest, kwargs = args[0], list(args[1:]), dict(kwargs)
    where, other = None, rest[0] if rest else kwargs.get("other")
    if isinstance(other, torch.Tensor):
        where = place_of(other)
    elif rest and isinstance(rest[0], (str, int, torch.device)):
        where = place(rest[0])
        if where is not None:
            rest[0] = CPU
    elif kwargs.get("device") is not None:
        where = place(kwargs["device"])
        if where is not None:
            kwargs["device"] = CPU
    return moved(tensor, func(tensor, *rest, **kwargs), where)


def _cuda(func: object, args: tuple, kwargs: dict) -> object:
    device = args[1] if len(args) > 1 else kwargs.get("device")
    where = place("cuda" if device is None else device)
    if device is not None and not isinstance(where, int):
        raise RuntimeError(f"Invalid device, must be cuda device: {device}")
    return moved(args[0], args[0], where)


def _cpu(func: object, args: tuple, kwargs: dict) -> object:
    return moved(args[0], args[0], CPU)


def _type(func: object, args: tuple, kwargs: dict) -> object:
    kind = args[1] if len(args) > 1 else kwargs.get("dtype")
    if kind is None:
        said = func(*args, **kwargs)
        return said.replace("torch.", "torch.cuda.") if isinstance(place_of(args[0]), int) else said
    plain = getattr(kind, "_plain", None) or (
        kind.replace("torch.cuda.", "torch.") if isinstance(kind, str) else kind
    )
    where = None if isinstance(kind, torch.dtype) else place("cuda") if plain is not kind else CPU
    return moved(args[0], func(args[0], plain), where)


def _numpy(func: object, args: tuple, kwargs: dict) -> object:
    where = place_of(args[0])
    if isinstance(where, int) and not kwargs.get("force"):
        raise TypeError(
            f"can't convert cuda:{where} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )
    return func(*args, **kwargs)


def _pin_memory(func: object, args: tuple, kwargs: dict) -> object:
    if isinstance(place_of(args[0]), int):
        raise RuntimeError(
            f"cannot pin '{args[0].type().replace('torch.', 'torch.cuda.')}' only dense CPU tensors can be "
            "pinned"
        )
    out = mark(args[0].clone() if not args[0].requires_grad else args[0], CPU)
    pin(out)
    return out


def _is_pinned(func: object, args: tuple, kwargs: dict) -> object:
    return bool(getattr(args[0].untyped_storage(), "_rehearsed_pinned", False))


def _index(func: object, args: tuple, kwargs: dict) -> object:
    where = place_of(args[0])
    if where == CPU:
        for tensor in tensors_in(args[1]):
            if isinstance(place_of(tensor), int) and tensor.dim():
                raise RuntimeError(
                    "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
                )
    if isinstance(where, int):
        for tensor in tensors_in(args[1]):
            if isinstance(place_of(tensor), int) and place_of(tensor) != where and tensor.dim():
                raise RuntimeError(
                    "indices should be either on cpu or on the same device as the indexed tensor "
                    f"(cuda:{where})"
                )
    out = func(*args, **kwargs)
    return mark(out, where) if out is not None else out


def _device(func: object, args: tuple, kwargs: dict) -> object:
    if len(args) == 1 and isinstance(args[0], int) and not isinstance(args[0], bool):
        return func("cuda", args[0])
    return func(*args, **kwargs)


def _as_tensor(func: object, args: tuple, kwargs: dict) -> object:
    where = place(kwargs["device"]) if kwargs.get("device") is not None else None
    if where is not None:
        kwargs = {**kwargs, "device": CPU}
    out = func(*args, **kwargs)
    if isinstance(args[0], torch.Tensor):
        return moved(args[0], out, where)
    return mark(out, where if where is not None else default["place"])


def _packed(func: object, args: tuple, kwargs: dict) -> object:
    lengths = args[1]
    if isinstance(place_of(lengths), int):
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got 1D {name_of(place_of(lengths))} "
            "Long tensor"
        )
    data, sizes = func(*args, **kwargs)
    mark(data, place_of(args[0]))
    return data, mark(sizes, CPU)


def _get_device(func: object, args: tuple, kwargs: dict) -> object:
    where = place_of(args[0])
    return where if isinstance(where, int) else func(*args, **kwargs)


def _repr(func: object, args: tuple, kwargs: dict) -> object:
    said = func(*args, **kwargs)
    where = place_of(args[0])
    return f"{said[:-1]}, device='cuda:{where}')" if isinstance(where, int) and said.endswith(")") else said


_SPECIAL = {
    "to": _to,
    "cuda": _cuda,
    "cpu": _cpu,
    "type": _type,
    "numpy": _numpy,
    "__array__": _numpy,
    "pin_memory": _pin_memory,
    "is_pinned": _is_pinned,
    "__getitem__": _index,
    "__setitem__": _index,
    "device": _device,
    "as_tensor": _as_tensor,
    "asarray": _as_tensor,
    "_pack_padded_sequence": _packed,
    "get_device": _get_device,
    "__repr__": _repr,
    "record_stream": lambda func, args, kwargs: None,
    "untyped_storage": lambda func, args, kwargs: func(*args, **kwargs),
}


def install(module: object) -> None:
    """Begin to pretend, in this thread and all that come."""
    global torch, _MODE
    torch = module
    from torch.overrides import TorchFunctionMode

    class Pretended(TorchFunctionMode):
        def __torch_function__(
            self, func: object, types: object, args: tuple = (), kwargs: object = None
        ) -> object:
            return call(func, args, kwargs or {})

    _MODE = Pretended
    enter()
    run = threading.Thread.run

    def in_thread(self: threading.Thread) -> None:
        enter()
        run(self)

    threading.Thread.run = in_thread
    _storages()


def enter() -> None:
    """This thread's torch has GPUs."""
    _MODE().__enter__()


def on() -> object:
    """A `with` in which torch is pretended: inside a call of torch it is not."""
    return _MODE()


def off() -> object:
    """A `with` in which torch is what it is."""
    return torch._C.DisableTorchFunction()


class loads:
    """A `with` around a torch.load that was called with these arguments."""

    def __init__(self, args: tuple, kwargs: dict) -> None:
        self._unmapped = kwargs.get("map_location") is None and not args

    def __enter__(self) -> None:
        loading["unmapped"] = self._unmapped

    def __exit__(self, *_: object) -> None:
        loading["unmapped"] = False


def _storages() -> None:
    """Saving and loading: files say where their tensors were."""
    from torch import serialization

    tag, restore = serialization.location_tag, serialization.default_restore_location

    def location_tag(storage: object) -> str:
        where = getattr(getattr(storage, "_untyped_storage", storage), "_rehearsed", None)
        return f"cuda:{where}" if isinstance(where, int) else tag(storage)

    def default_restore_location(storage: object, location: str) -> object:
        location = str(location)
        if not location.startswith("cuda"):
            if location == CPU:
                storage._rehearsed = CPU
            return restore(storage, location)
        index = int(location.partition(":")[2] or device_now())
        if index >= count():
            raise RuntimeError(
                f"Attempting to deserialize object on CUDA device {index} but torch.cuda.device_count() is "
                f"{count()}. Please use "
                "torch.load with map_location to map your storages to an existing device."
            )
        if loading["unmapped"] and index != device_now():
            once(
                "lint",
                "map_location",
                text=f"torch.load without map_location loads tensors to cuda:{index} in a process that uses "
                f"cuda:{device_now()}",
                at=place_in_script(),
            )
        storage._rehearsed = index
        return storage

    serialization.location_tag, serialization.default_restore_location = (
        location_tag,
        default_restore_location,
    )

    def cuda(self: object, device: object = None, non_blocking: bool = False) -> object:
        out = self.clone()
        (getattr(out, "_untyped_storage", out))._rehearsed = place("cuda" if device is None else device)
        return out

    torch.storage._StorageBase.cuda = torch.UntypedStorage.cuda = torch.TypedStorage.cuda = cuda
