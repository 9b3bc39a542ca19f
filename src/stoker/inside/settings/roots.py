"""The root module: the one that the script calls itself and that holds all the optimizer's parameters.
Its calls pass through here.

An era begins with an optimizer that is made after another has stepped: a new training in the same process.
"""

from __future__ import annotations

import sys
import threading
import weakref
from _thread import get_ident

from ..entry import unnumbered
from . import told
from .outputs import is_last

TOLD_MAX = 8
run = None  # run(real, module, args, kwargs): how the root is called while a knob asks for it
at_optimizer: list = []  # called with each optimizer that is made
at_root: list = []  # called once in an era, when its root is known; with the first optimizer, the root
at_step: list = []  # called once, behind the first step of the process

optimizers: list = []  # weak references: those of this era
# type -> how many calls of the script's own, of modules with some of the parameters,
# while the root was not known
types: dict = {}
autocast = False  # the script's root was called under its own autocast
last: bool | None = None  # the inputs of the root's first call were in channels_last; None: no input tells
_root: weakref.ref | None = None
_inside = _stepped = _installed = False
_main = 0


def install(modules: bool = True) -> None:
    """Watch optimizers that are made, and `modules` that are called."""
    global _installed, _main
    if _installed:
        return
    _installed = True
    _main = threading.main_thread().ident
    import torch
    from torch.optim import Optimizer, optimizer

    from ..clock.wrapping import wrap
    if modules:
        wrap(torch.nn.Module, "__call__", _call)
    wrap(Optimizer, "__init__", _made)
    unnumbered.register(optimizer.register_optimizer_step_post_hook, _step)


def root() -> object:
    """The root module, or None while it is not known."""
    return _root and _root()


def living() -> list:
    """The optimizers of this era."""
    return [each for each in (ref() for ref in optimizers) if each is not None]


def parameters() -> list:
    """Those of this era's optimizers, in their order."""
    return [p for each in living() for group in each.param_groups for p in group["params"]]


def _call(real: object) -> object:
    def __call__(self, *args, **kwargs):
        global _inside
        if _inside or not optimizers or get_ident() != _main:
            return real(self, *args, **kwargs)
        _inside = True
        try:
            known = _root and _root()
            if known is None:
                _learn(self, args, kwargs)
                known = _root and _root()
            if self is known and run is not None:
                return run(real, self, args, kwargs)
            return real(self, *args, **kwargs)
        finally:
            _inside = False
    return __call__


def casts() -> bool:
    """Whether the script is under its own autocast now."""
    torch = sys.modules["torch"]
    try:
        return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    except TypeError:  # before torch 2.4
        return torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled()


def _learn(module: object, args: tuple, kwargs: dict) -> None:
    """Is this the root? It is called by the script, and nothing is trained that it does not hold."""
    global _root, autocast, last
    try:
        wanted = {id(p) for p in parameters()}
        held = {id(p) for p in module.parameters()} & wanted
        if not held:
            return
        if len(types) < TOLD_MAX:
            types[type(module).__name__] = types.get(type(module).__name__, 0) + 1
        if held != wanted:
            return
        autocast = casts()
        _root = weakref.ref(module)
        for call in at_root:
            call(module)
        last = is_last([args, kwargs])
    except Exception as e:
        told.failed("the root module", e)


def _made(real: object) -> object:
    def __init__(self, *args, **kwargs):
        real(self, *args, **kwargs)
        try:
            _began(self)
        except Exception as e:
            told.failed("the optimizer", e)
    return __init__


def _began(optimizer: object) -> None:
    global _root, _stepped
    if get_ident() != _main:
        return
    if _stepped and optimizers:
        optimizers.clear()
        types.clear()
        _root, _stepped = None, False
    optimizers.append(weakref.ref(optimizer))
    for call in at_optimizer:
        call(optimizer)


def _step(optimizer: object, args: object, kwargs: object) -> None:
    global _stepped
    _stepped = True
    while at_step:
        at_step.pop()()
