"""Tensors within what goes into a module and comes out of it."""

from __future__ import annotations

import dataclasses
import sys

DEEP = 6


def as_float(value: object) -> object:
    """With float32 where autocast left a shorter format."""
    torch = sys.modules["torch"]
    short = (torch.bfloat16, torch.float16)
    return _each(value, lambda tensor: tensor.float() if tensor.dtype in short else tensor, 0, True)


def as_read(value: object, back: bool = False) -> object:
    """With 4-D floating tensors in channels_last; `back`:
    as a script expects them that knows nothing of it."""
    torch = sys.modules["torch"]
    layout = torch.contiguous_format if back else torch.channels_last

    def turn(tensor: object) -> object:
        if tensor.dim() != 4 or not tensor.is_floating_point() or tensor.layout is not torch.strided:
            return tensor
        return tensor.contiguous(memory_format=layout)
    return _each(value, turn, 0, back)


def is_last(values: object) -> bool | None:
    """Whether the 4-D tensors in `values` are in channels_last. None where no tensor tells: with one channel,
    or one pixel, a tensor is contiguous in both formats."""
    torch = sys.modules["torch"]
    found: list = []

    def look(tensor: object) -> object:
        if tensor.dim() == 4 and tensor.is_floating_point() and tensor.layout is torch.strided:
            last = tensor.is_contiguous(memory_format=torch.channels_last)
            if not (last and tensor.is_contiguous()):
                found.append(last)
        return tensor
    _each(values, look, 0, False)
    return all(found) if found else None


def _each(value: object, change: object, deep: int, out: bool) -> object:
    """`value` with each tensor changed; what holds none that change is the same object.
    Only an output's own object (`out`) is changed
    itself: a dict with attributes, a dataclass, as models of libraries give them."""
    if isinstance(value, sys.modules["torch"].Tensor):
        return change(value)
    if deep > DEEP or value is None or isinstance(value, (str, bytes, int, float)):
        return value
    if type(value) is list or isinstance(value, tuple):
        inside = [_each(each, change, deep + 1, out) for each in value]
        if all(a is b for a, b in zip(inside, value)):  # noqa: B905  # Python 3.9
            return value
        return (
            inside
            if type(value) is list
            else type(value)(*inside)
            if hasattr(value, "_fields")
            else type(value)(inside)
        )
    if isinstance(value, dict):
        found = {key: _each(each, change, deep + 1, out) for key, each in value.items()}
        if type(value) is dict:
            return value if all(found[key] is value[key] for key in found) else found
        for key, new in found.items() if out else ():
            if new is not value[key]:
                value[key] = new
        return value
    if out and dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            old = getattr(value, field.name, None)
            new = _each(old, change, deep + 1, out)
            if new is not old:
                object.__setattr__(value, field.name, new)
    return value
