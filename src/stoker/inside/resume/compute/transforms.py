"""torch.func: a call of what `vmap`, `grad` and the like have made is one event as a whole.
What passes through it inside are torch's wrappers around tensors, which hold no memory of their own.
And functional_call, whose tensors no module keeps.
"""

from __future__ import annotations

import functools
import types

from ..core import phases
from ..state import reachability
from . import gradients

_MAKERS = {
    "vmap": False,
    "grad": True,
    "grad_and_value": True,
    "jacrev": True,
    "jacfwd": True,
    "hessian": True,
    "functionalize": False,
}
_CALLS = ("jvp", "vjp", "linearize")


def install(shield: object) -> None:
    """Once torch is imported; `shield` makes an event of a function: shields.shield."""
    import torch
    from torch._functorch import apis, eager_transforms
    for name in (*_MAKERS, *_CALLS):
        real = getattr(torch.func, name, None)
        if real is None:
            continue
        ours = _handing(shield(real, name)) if name in _CALLS else _maker(real, name, shield)
        for owner in (torch, torch.func, apis, eager_transforms):
            if getattr(owner, name, None) is real:
                setattr(owner, name, ours)
    stateless = torch.nn.utils.stateless
    stateless._functional_call = _handing(shield(stateless._functional_call, "functional_call"))


def _maker(real: object, name: str, shield: object) -> object:
    """As `real`, but what it makes is shielded; with gradients in it, it counts as a backward."""
    @functools.wraps(real)
    def make(func: object, *args: object, **kwargs: object) -> object:
        _know(func)
        differentiates = _MAKERS[name] or getattr(func, "_stoker_differentiates", False)
        made = _handing(shield(real(func, *args, **kwargs), name, False, differentiates))
        made._stoker_differentiates = differentiates
        return made
    return make


def _know(func: object) -> None:
    if type(func) is types.FunctionType:
        reachability.handed.add(func)


def _handing(shielded: object) -> object:
    """Leaves among what is handed over may get a gradient from the next backward."""
    from torch.utils._pytree import tree_leaves

    @functools.wraps(shielded)
    def call(*args: object, **kwargs: object) -> object:
        if phases.here():
            _know(args[0] if args else None)
            for each in tree_leaves((args, kwargs)):
                gradients.know_input(each)
        return shielded(*args, **kwargs)
    return call
