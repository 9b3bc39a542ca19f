"""The memory of an image: each storage copied once, however many tensors look at it,
and put back in place."""

from __future__ import annotations

import ctypes
import sys
import weakref

from ...looks import isinstance
from ..core import store

BIG = 1 << 20  # constants larger than this are kept by checksum only
_ALIGN = 64
_constants: dict = {}  # address of a storage or array -> (weak reference, bytes, checksum or None)
_pool = None  # the buffer that images are copied into, used again and again


def storage_key(tensor) -> int:
    """A number that tensors on the same storage share while it lives."""
    return tensor.untyped_storage()._cdata


def flat(tensor):
    """All bytes of a tensor's storage, as a one-dimensional uint8 tensor on the same memory."""
    torch = sys.modules["torch"]
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def form(tensor) -> tuple:
    """What must be equal in two lives, whatever the memory: class, dtype, shape, device, flags."""
    kind = type(tensor)
    return (
        f"{kind.__module__}.{kind.__qualname__}", str(tensor.dtype), tuple(tensor.shape), str(tensor.device),
        tensor.requires_grad, tensor.is_leaf, bool(tensor.is_conj()), bool(tensor.is_neg()),
    )  # fmt: skip


def place(tensor) -> tuple:
    return tuple(tensor.stride()), tensor.storage_offset()


def version(tensor) -> int:
    """How often it was written to; 0 for one of inference mode, which does not count."""
    return 0 if tensor.is_inference() else tensor._version


def cannot(tensor) -> str:
    """Why the memory of a tensor cannot be saved, or nothing."""
    torch = sys.modules["torch"]
    if tensor.layout != torch.strided:
        return f"a sparse tensor ({tensor.layout})"
    if tensor.is_quantized:
        return "a quantized tensor"
    if getattr(tensor, "is_nested", False):
        return "a nested tensor"
    if tensor.device.type not in ("cpu", "cuda", "meta"):
        return f"a tensor on {tensor.device.type}"
    if tensor.device.type != "meta" and tensor.numel() and not _own_bytes(tensor):
        return f"a {type(tensor).__name__} whose data is not in the memory of the tensor"
    return ""


def _own_bytes(tensor) -> int:
    try:
        return tensor.untyped_storage().nbytes()
    except RuntimeError:  # made by a transform (vmap, grad), and kept
        return 0


class Copy:
    """Everything that an image copies: `groups` of tensors that share a storage, `arrays`,
    and what the parts hand in.

    A group or array is ("data", offset, bytes) or ("same", bytes, checksum):
    a constant that the next life makes by itself."""

    def __init__(self):
        self.groups, self.members, self.arrays, self.extra = [], {}, {}, []
        # (address, bytes, checksum or None, owner): constants that the writer looks at once more
        self.proofs = []
        self._ordinals, self._sources, self.size = {}, [], 0

    def tensor(self, path: str, tensor) -> None:
        """Note a tensor; its storage is copied by `fill`."""
        if tensor.device.type == "meta":
            self.members[path] = (-1, form(tensor), place(tensor), version(tensor))
            return
        key = storage_key(tensor)
        group = self._ordinals.get(key)
        if group is None:
            group = self._ordinals[key] = len(self.groups)
            storage = tensor.untyped_storage()
            self.groups.append(
                self._source(tensor, storage.data_ptr(), storage.nbytes(), tensor.device.type == "cpu")
            )
        self.members[path] = (group, form(tensor), place(tensor), version(tensor))

    def array(self, path: str, array) -> None:
        told = (
            kind_of(array),
            tuple(array.shape),
            bool(array.flags.writeable),
            bool(array.flags.c_contiguous),
        )
        if is_memmap(array):
            self.arrays[path] = (told, ("file",))
            return
        contiguous = array.flags.c_contiguous
        address = array.__array_interface__["data"][0] if contiguous else 0
        self.arrays[path] = (told, self._source(array, address, array.nbytes, contiguous))

    def put(self, thing) -> int:
        """For the parts: keep a tensor or an array; `Stored.get` gives it back by this number."""
        torch = sys.modules["torch"]
        if isinstance(thing, torch.Tensor):
            copied = thing.detach().cpu().contiguous()
            source = self._source(flat(copied), 0, copied.untyped_storage().nbytes(), False)
            self.extra.append(("tensor", str(copied.dtype), tuple(copied.shape), source))
        else:
            self.extra.append(
                (
                    "array",
                    thing.dtype.str,
                    tuple(thing.shape),
                    self._source(thing.copy(), 0, thing.nbytes, False),
                )
            )
        return len(self.extra) - 1

    def _source(self, thing, address: int, size: int, plain: bool) -> tuple:
        known = _constants.get(address) if plain and size > BIG else None
        if known is not None and known[0]() is not None and known[1] == size:
            self.proofs.append((address, size, known[2], thing))
            return ("same", size, len(self.proofs) - 1)
        offset = self.size
        self.size += (size + _ALIGN - 1) // _ALIGN * _ALIGN
        self._sources.append((thing, offset, size))
        return ("data", offset, size)

    def fill(self):
        """Copy it all, now; a view of the bytes, good until the next `fill`."""
        global _pool
        torch = sys.modules["torch"]
        if _pool is None or _pool.numel() < self.size or _pool.numel() > 4 * self.size + (64 << 20):
            _pool = None
            _pool = torch.empty(max(self.size, 1), dtype=torch.uint8, device="cpu")
        for thing, offset, size in self._sources:
            target = _pool[offset : offset + size]
            if not size:
                continue
            # torch would wake its threads for every single copy
            if isinstance(thing, torch.Tensor) and thing.device.type == "cpu":
                ctypes.memmove(target.data_ptr(), thing.untyped_storage().data_ptr(), size)
            elif isinstance(thing, torch.Tensor):
                target.copy_(flat(thing)[:size])
            else:
                numpy = sys.modules["numpy"]
                view = numpy.frombuffer(store.memory(target.data_ptr(), size), dtype=thing.dtype).reshape(
                    thing.shape
                )
                view[...] = thing
        self._sources.clear()
        return store.memory(_pool.data_ptr(), self.size) if self.size else memoryview(b"")


def kind_of(array) -> str:
    """What the elements are: of a record its fields too, of a class of its own that one's name."""
    told = array.dtype.str if array.dtype.names is None else repr(array.dtype)
    kind = type(array)
    return told if kind is sys.modules["numpy"].ndarray else f"{kind.__module__}.{kind.__qualname__} {told}"


def pool():
    return _pool


def is_memmap(array) -> bool:
    """Whether what it holds lies in a file that is only read."""
    numpy = sys.modules["numpy"]
    while array is not None:
        if isinstance(array, numpy.memmap):
            return array.mode in ("r", "c")
        array = getattr(array, "base", None)
    return False


def remember_constants(walk) -> None:
    """At the end of set-up: large memory that training has no reason to change.
    Both lives make it, so its checksum is enough."""
    for path, tensor in walk.tensors.items():
        if (
            tensor.requires_grad
            or "._buffers[" in path
            or "._parameters[" in path
            or ".state[" in path
            or store_cannot(tensor)
        ):
            continue
        storage = tensor.untyped_storage()
        if tensor.device.type == "cpu" and storage.nbytes() > BIG:
            _remember(tensor, storage.data_ptr(), storage.nbytes())
    for array in walk.arrays.values():
        if array.nbytes > BIG and array.flags.c_contiguous and not is_memmap(array):
            _remember(array, array.__array_interface__["data"][0], array.nbytes)


def store_cannot(tensor) -> bool:
    return bool(cannot(tensor)) or tensor.device.type == "meta"


def _remember(owner, address: int, size: int) -> None:
    _constants.setdefault(address, (weakref.ref(owner), size, store.checksum(store.memory(address, size))))


def is_still(address: int, size: int, value: object) -> bool:
    """Whether the memory there has the checksum that it had."""
    return store.checksum(store.memory(address, size)) == value


def forget_constants() -> None:
    """One of them changed: from here on all memory is copied."""
    _constants.clear()
