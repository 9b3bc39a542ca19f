"""Every value that Python takes out of a tensor:
while recording it goes into the log, as a ghost it comes out of it.

Numbers pass one choke point, the kernel of aten::_local_scalar_dense, whoever asks and however;
arrays, lists and texts have one each.
Ops whose output shape depends on the data are found by their tag in torch, and replaced as kernels too, so
that every way to them is
covered: a ghost gets a stand-in of the recorded shape.
"""

from __future__ import annotations

import _thread
import functools
import sys
import warnings
import weakref

from ...looks import isinstance
from ..core import internals, log, outcome, phases, resume_cost, words
from ..world import rng

_get_ident, _getframe = _thread.get_ident, sys._getframe
BIG = 64 << 20  # bytes of one array that may go into the log
_DEVICES = ("CPU", "CUDA")
# tagged, but not to be replaced: masks in `index` are turned into positions by nonzero; the loss has the
# shape that its lists say
_NOT_SHAPED = (
    "aten::_local_scalar_dense",
    "aten::equal",
    "aten::index.Tensor",
    "aten::_ctc_loss",
    "aten::_ctc_loss.Tensor",
)
_library = None  # keeps the kernels registered


def python_rng_begins(random: object) -> None:
    """`random` has just been imported: put its recorded start back, or keep it to be recorded."""
    rng.python_begins(random)
    rng.start("python")


def numpy_rng_begins(numpy: object) -> None:
    """As `python_rng_begins`, for numpy."""
    rng.numpy_begins(numpy)
    rng.start("numpy")


def install() -> None:
    """Replace kernels and methods; from the first shielded event on each value is an event."""
    global _library
    import torch
    rng.start("torch")
    rng.install()
    _library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of each replaced kernel
        for device in _DEVICES:
            _replace("aten::_local_scalar_dense", device, _scalar_kernel("item"))
            _replace("aten::equal", device, _scalar_kernel("equal"))
            for name in shaped_by_data():
                _replace(name, device, functools.partial(_shaped_kernel, name))
    _wrap(torch.Tensor, "tolist", "tolist")
    _wrap(torch._tensor_str, "_str", "text")
    _wrap_numpy(torch.Tensor)
    for owner, name in ((torch.Tensor, "__dlpack__"), (torch.UntypedStorage, "tolist")):
        _forbid(owner, name)
    _wrap_parts(torch.UntypedStorage)
    for owner in (torch, torch.random):
        _wrap_seed(torch, owner)


def shaped_by_data() -> list:
    """Names of the ops of aten with kernels of their own whose output shape depends on the data,
    by their tag."""
    import torch
    tag, wanted = (
        torch.Tag.dynamic_output_shape,
        [
            name
            for name in internals.aten_names()
            if name.startswith("aten::") and name not in _NOT_SHAPED and not name.endswith("out")
        ],
    )
    return [name for name in wanted if tag in internals.tags_of(name) and internals.has_kernel(name, "CPU")]


def _replace(name: str, device: str, make: object) -> None:
    """Put our kernel in the place of torch's, which it calls."""
    if internals.has_kernel(name, device):
        op, kernel = internals.kernel(name, device)
        _library.impl(op, make(kernel), device)


def _scalar_kernel(name: str) -> object:
    kind = phases.log.kind(name)

    def make(real: object) -> object:
        timed = resume_cost.skipped(real)

        def kernel(*tensors: object) -> object:
            if phases.depth or phases.phase <= 1 or _get_ident() != phases.main:
                return timed(*tensors)
            if phases.phase == 3:
                return phases.log.take(kind)
            value = real(*tensors) if resume_cost.left is None else timed(*tensors)
            try:
                phases.log.put_at(kind, value, phases.log.spot(_getframe(1)))
            except Exception as e:
                outcome.broke(e)
            return value
        return kernel
    return make


def _shaped_kernel(name: str, real: object) -> object:
    from . import stand_ins
    kind, real = phases.log.kind(name), resume_cost.skipped(real)

    def kernel(*args: object, **kwargs: object) -> object:
        if phases.depth or phases.phase <= 1 or _get_ident() != phases.main:
            return real(*args, **kwargs)
        if phases.phase == phases.GHOST:
            value = phases.log.take(kind)
            phases.depth = 1
            try:
                return stand_ins.build(value)
            finally:
                phases.depth = 0
        phases.depth = 1
        try:
            out = real(*args, **kwargs)
            try:
                value = stand_ins.template(
                    out, name, tuple(tuple(a.shape) for a in args if hasattr(a, "shape"))
                )
                phases.log.put(kind, value)
            except Exception as e:
                outcome.broke(e)
            return out
        finally:
            phases.depth = 0
    return kernel


def _wrap(owner: object, name: str, event: str) -> None:
    """A function whose result is a value: text, or a list of numbers."""
    real, kind = resume_cost.skipped(getattr(owner, name)), phases.log.kind(event)

    @functools.wraps(real)
    def wrapper(*args: object, **kwargs: object) -> object:
        if phases.depth or phases.phase <= 1 or _get_ident() != phases.main:
            return real(*args, **kwargs)
        if phases.phase == phases.GHOST:
            return phases.log.take(kind)
        phases.depth = 1
        try:
            value = real(*args, **kwargs)
            try:
                phases.log.put(kind, value)
            except Exception as e:
                outcome.broke(e)
            return value
        finally:
            phases.depth = 0
    setattr(owner, name, wrapper)


def _wrap_numpy(tensor: type) -> None:
    """`numpy()` hands out the tensor's own memory:
    a ghost gets that memory too, with the recorded content in it."""
    real, kind = tensor.numpy, phases.log.kind("numpy")

    @functools.wraps(real)
    def wrapper(*args: object, **kwargs: object) -> object:
        if phases.depth or phases.phase <= 1 or _get_ident() != phases.main:
            return real(*args, **kwargs)
        if phases.phase == phases.GHOST:
            return _with_content(real, args, kwargs, log.unpack(phases.log.take(kind)))
        array = real(*args, **kwargs)
        try:
            if array.nbytes > BIG:
                outcome.refuse(words.BIG_ARRAY.format(size=array.nbytes >> 20, what="numpy()"))
            else:
                phases.log.put(kind, log.pack(array))
        except Exception as e:
            outcome.broke(e)
        return array
    tensor.numpy = wrapper


def _with_content(real: object, args: tuple, kwargs: dict, recorded: object) -> object:
    phases.depth = 1
    try:
        array = real(*args, **kwargs)
        if array.dtype != recorded.dtype or array.shape != recorded.shape:
            then, now = f"{recorded.dtype}{recorded.shape}", f"{array.dtype}{array.shape}"
            outcome.diverged(f"numpy() returned {then} in the recording, and returns {now} now")
        if not array.flags.writeable or 0 in array.strides:
            return recorded
        array[...] = recorded
        return array
    finally:
        phases.depth = 0


def _forbid(owner: type, name: str) -> None:
    """A way out of a tensor that is not followed: whoever goes it can not be resumed."""
    real = getattr(owner, name, None)
    if real is None:
        return

    @functools.wraps(real)
    def wrapper(*args: object, **kwargs: object) -> object:
        if phases.training():
            outcome.refuse(words.EXPORTED.format(what=name))
        return real(*args, **kwargs)
    setattr(owner, name, wrapper)


def _wrap_parts(storage: type) -> None:
    """A byte of a storage is a value. A part of a file that was mapped is a storage of its own (safetensors
    reads so); of any other it is the same memory under a second name, which is not followed."""
    real_map, real_part, kind = storage.from_file, storage.__getitem__, phases.log.kind("byte")
    mapped: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # id -> what `from_file` gave

    @functools.wraps(real_map)
    def from_file(*args: object, **kwargs: object) -> object:
        found = real_map(*args, **kwargs)
        mapped[id(found)] = found
        return found

    @functools.wraps(real_part)
    def part(self: object, index: object, *more: object) -> object:
        if not phases.training():
            return real_part(self, index, *more)
        if isinstance(index, slice):
            if mapped.get(id(self)) is not self:
                outcome.refuse(words.EXPORTED.format(what="a slice of the tensor's storage"))
            return real_part(self, index, *more)
        if phases.phase == phases.GHOST:
            return phases.log.take(kind)
        phases.depth = 1  # torch reads a byte by the kernel of `item()`: one value, one event
        try:
            value = real_part(self, index, *more)
        finally:
            phases.depth = 0
        phases.log.put(kind, value)
        return value
    storage.from_file, storage.__getitem__ = staticmethod(from_file), part


def _wrap_seed(torch: object, owner: object) -> None:
    """`seed()` takes entropy from the system behind the back of os.urandom."""
    real, kind = getattr(owner, "seed", None), phases.log.kind("seed")
    if real is None:
        return

    @functools.wraps(real)
    def wrapper(*args: object, **kwargs: object) -> object:
        if not phases.here():
            return real(*args, **kwargs)
        if phases.replaying():
            value = phases.log.take(kind)
            torch.manual_seed(value)
            return value
        value = real(*args, **kwargs)
        try:
            phases.log.put(kind, value)
        except Exception as e:
            outcome.broke(e)
        return value
    owner.seed = wrapper


def save(store: object = None) -> object:
    """What an image keeps of this part."""
    return rng.save()


def load(state: object, store: object = None) -> None:
    rng.load(state)
