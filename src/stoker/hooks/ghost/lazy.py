"""Lazy modules get their parameters in their first call: a ghost, which skips calls, has to make that one, for the script goes on to use
what it made.
"""

from __future__ import annotations

import functools

_MADE = "made"
_made = False  # since this was last asked


def install() -> None:
    """Once torch is imported."""
    import torch
    mixin = torch.nn.modules.lazy.LazyModuleMixin
    real = mixin._infer_parameters

    @functools.wraps(real)
    def _infer_parameters(self: object, *args: object, **kwargs: object) -> None:
        global _made
        _made = True
        real(self, *args, **kwargs)
    mixin._infer_parameters = _infer_parameters


def told(value: object) -> object:
    """For the log: the value of a module's call, marked if parameters were made in it."""
    global _made
    if not _made:
        return value
    _made = False
    return (_MADE, value)


def call(value: object, module_call: object, module: object, args: tuple, kwargs: dict) -> object:
    """As a ghost: the value without the mark; where it was marked, the module is called."""
    global _made
    if type(value) is not tuple or value[0] != _MADE:
        return value
    module_call(module, *args, **kwargs)
    _made = False
    return value[1]
