"""Random generators that the script holds: their states in plain values, put back into them or into new ones
of the same kind."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

from ...looks import isinstance
from ..core import internals, leaves


def state(thing: object) -> tuple:
    """(kind, state, class) of a random generator, in plain values."""
    names = [leaves.name_of(kind) for kind in type(thing).__mro__]
    if "random.Random" in names or "_random.Random" in names:
        return (
            "python",
            random.Random.getstate(thing) if "random.Random" in names else (0, thing.getstate(), None),
            names[0],
        )
    if "torch._C.Generator" in names:
        return "torch", internals.torch_rng(thing), names[0]
    if "numpy.random.mtrand.RandomState" in names:
        return "numpy", _plain(thing.get_state(legacy=False)), names[0]
    return "bits", _plain(getattr(thing, "bit_generator", thing).state), names[0]


def put_back(thing: object, saved: tuple) -> None:
    """Give a generator a state that `state` told."""
    kind, value, _ = saved
    if kind == "python":
        if isinstance(thing, random.Random):
            random.Random.setstate(thing, value)
        else:
            thing.setstate(value[1])
    elif kind == "torch":
        internals.set_torch_rng(value, thing)
    elif kind == "numpy":
        thing.set_state(_rich(value))
    else:
        getattr(thing, "bit_generator", thing).state = _rich(value)


def maker(saved: tuple) -> Callable[[], object] | None:
    """What makes a generator of the kind that such a state is of, or None;
    its own state comes by `put_back`."""
    kind, value, name = saved
    numpy = sys.modules.get("numpy")
    if kind == "torch":
        return sys.modules["torch"].Generator if len(value) == len(internals.torch_rng()) else None
    if kind == "python":
        return random.Random if name == "random.Random" else None
    if kind == "numpy":
        return numpy.random.RandomState if name == "numpy.random.mtrand.RandomState" else None
    bits = getattr(numpy.random, dict(value[1])["bit_generator"][1], None)
    if name != "numpy.random._generator.Generator" or bits is None:
        return None
    return lambda: numpy.random.Generator(bits())


def of_gpus() -> list | None:
    """State of each GPU's own generator, in bytes; None where no GPU is in use."""
    torch = sys.modules["torch"]
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return [bytes(each.tolist()) for each in torch.cuda.get_rng_state_all()]


def _plain(value: object) -> tuple:
    if isinstance(value, dict):
        return ("dict", [(key, _plain(inner)) for key, inner in value.items()])
    if hasattr(value, "tobytes") and getattr(value, "shape", ()) != ():
        return ("array", value.dtype.str, value.tobytes())
    return ("value", value.item() if hasattr(value, "item") else value)


def _rich(value: tuple) -> object:
    if value[0] == "dict":
        return {key: _rich(inner) for key, inner in value[1]}
    if value[0] == "array":
        return sys.modules["numpy"].frombuffer(value[2], dtype=value[1]).copy()
    return value[1]
