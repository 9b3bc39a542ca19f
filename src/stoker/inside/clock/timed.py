"""Calls that are one thing wherever they happen: saving, printing, copying."""

from __future__ import annotations

from _thread import get_ident as _get_ident

from . import marks
from .wrapping import dressed

_timing = False  # within such a call


def install() -> None:
    """What torch saves."""
    import torch
    torch.save = torch.serialization.save = timed(torch.save, marks.SAVE)


def timed(real: object, kind: int) -> object:
    """`real`, its time taken out of whatever it happens in."""
    def wrapper(*args, **kwargs):
        global _timing
        if _timing or _get_ident() != marks.owner:
            return real(*args, **kwargs)
        _timing, began = True, marks.now()
        if kind == marks.SAVE:
            marks.busy(began)
        try:
            return real(*args, **kwargs)
        finally:
            took, _timing = marks.now() - began, False
            marks.spent[kind] += took
            marks.last += took
    return dressed(real, wrapper)


def timed_outside(real: object, kind: int) -> object:
    """`timed`, but only where the script calls it itself."""
    timed_one = timed(real, kind)

    def wrapper(*args, **kwargs):
        return real(*args, **kwargs) if marks.inside() else timed_one(*args, **kwargs)
    return dressed(real, wrapper)


def image_taken(seconds: float) -> None:
    """Exact resume has taken an image, or tried to, in the middle of the script's own code."""
    if _get_ident() == marks.owner and not _timing:
        marks.spent[marks.IMAGE] += int(seconds * 1e9)
        marks.last += int(seconds * 1e9)
