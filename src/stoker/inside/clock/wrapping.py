"""To stand around a function as if one were it."""

from __future__ import annotations


def wrap(where: object, name: str, make: object) -> None:
    """Put `make(real)` where `real` is."""
    real = getattr(where, name)
    setattr(where, name, dressed(real, make(real)))


def dressed(real: object, wrapper: object) -> object:
    """`wrapper` with the name of `real`: functools.wraps would be imported for this alone."""
    for word in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
        if hasattr(real, word):
            setattr(wrapper, word, getattr(real, word))
    wrapper.__dict__.update(getattr(real, "__dict__", {}))
    wrapper.__wrapped__ = real
    return wrapper
