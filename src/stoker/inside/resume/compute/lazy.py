"""What a call of a module makes of modules: parameters of lazy ones, and layers that a forward makes when it
first knows a size. A ghost, which skips calls, has to make such a call,
for the script goes on to use what it made.
"""

from __future__ import annotations

import functools
import sys
from _thread import get_ident

from ... import looks
from ...looks import isinstance
from ..core import phases

_MADE = "made"
made = False  # since this was last asked
joined: list = []  # modules that got a part where they had none; they may be of no use to anybody
instead: set = set()  # ids of modules that took the place of others: a ghost has those, which are compared


def install() -> None:
    """Once torch is imported."""
    import torch
    mixin = torch.nn.modules.lazy.LazyModuleMixin
    real = mixin._infer_parameters

    @functools.wraps(real)
    def _infer_parameters(self: object, *args: object, **kwargs: object) -> None:
        global made
        made = True
        real(self, *args, **kwargs)
    mixin._infer_parameters = _infer_parameters
    for name in ("register_parameter", "register_buffer", "add_module"):
        setattr(torch.nn.Module, name, _joining(getattr(torch.nn.Module, name)))


def _joining(real: object) -> object:
    @functools.wraps(real)
    def register(self: object, *args: object, **kwargs: object) -> None:
        if not args and "name" not in kwargs:
            return real(self, **kwargs)  # its error is torch's own
        name, rest = (args[0], args[1:]) if args else (kwargs.pop("name"), ())
        return joins(real, self, name, *rest, **kwargs)
    return register


def joins(real: object, module: object, name: str, /, *args: object, **kwargs: object) -> None:
    """`real(module, name, ...)` gives the module a part;
    noted if this happens in a call, where it had none."""
    if not phases.depth or phases.phase not in (phases.RECORD, phases.TAIL) or get_ident() != phases.main:
        real(module, name, *args, **kwargs)
        return
    before = _has(module, name)
    real(module, name, *args, **kwargs)
    if not before and _has(module, name):
        joined.append(module)
    elif before and isinstance(part := module._modules.get(name), sys.modules["torch"].nn.Module):
        instead.update((id(each) for _, each in looks.named_modules(part)))


def _has(module: object, name: str) -> bool:
    return any(
        module.__dict__.get(where, {}).get(name) is not None
        for where in ("_modules", "_parameters", "_buffers")
    )


def begins() -> None:
    """A call that the script makes."""
    joined.clear()
    instead.clear()


def told(value: object, module: object) -> object:
    """For the log: the value of a module's call, marked if something was made in it."""
    global made
    if joined:
        inside = {id(each) for _, each in looks.named_modules(module)} - instead
        made = made or any(id(each) in inside for each in joined)
        joined.clear()
    if not made:
        return value
    made = False
    return (_MADE, value)


def call(value: object, module_call: object, module: object, args: tuple, kwargs: dict) -> object:
    """As a ghost: the value without the mark; where it was marked, the module is called."""
    global made
    if type(value) is not tuple or value[0] != _MADE:
        return value
    phases.again = True  # what it writes is there already
    try:
        module_call(module, *args, **kwargs)
    finally:
        phases.again = False
    made = False
    return value[1]
