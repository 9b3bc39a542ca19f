"""Frameworks that Stoker does not look into: that the script imports them is recorded."""

from __future__ import annotations

from . import imports
from .processes import record

OTHERS = ("tensorflow", "jax")


def install(_process: object) -> None:
    """Once the script imports one of them."""
    for name in OTHERS:
        imports.after(name, lambda _module, name=name: record(other=name))
