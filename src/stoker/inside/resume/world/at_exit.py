"""What waits in `atexit`: Python tells only how much.
So what is registered and taken back is counted here, the libraries' own left out;
a walk compares it, for a ghost does not go where a forward or a data set registers a function.
"""

from __future__ import annotations

import atexit
import functools
import zlib

from ...looks import isinstance
from ..core import early_log, leaves

_told = [0, 0]  # calls, and a checksum over their names


def install_early() -> None:
    """Before anybody can take `register` by name."""
    of = early_log.Of("atexit")
    for name in ("register", "unregister"):
        early_log.replace(atexit, name, _noted(name, getattr(atexit, name)), of)


def told() -> tuple:
    """The same in each life that has registered the same functions, in the same order."""
    return tuple(_told)


def of_the_script(function: object) -> bool:
    """Whether what Python is to call at some time is the script's own, or one of its builtins that the script
    chose (`print`)."""
    while isinstance(function, functools.partial):
        function = function.func
    if type(function) is type(print):
        return function.__module__ == "builtins"
    code = getattr(function, "__code__", None) or getattr(
        getattr(type(function), "__call__"), "__code__", None  # noqa: B004, B009
    )
    return code is not None and not leaves.is_library(code.co_filename)


def _noted(name: str, old: object) -> object:
    def call(_of: object, *args: object, **kwargs: object) -> object:
        if not args:
            return old(**kwargs)
        function, *args = args
        if of_the_script(function):
            called = leaves.name_of(function if hasattr(function, "__qualname__") else type(function))
            _told[:] = _told[0] + 1, zlib.crc32(f"{name} {called}".encode("utf-8", "surrogatepass"), _told[1])
        return old(_as_it_was(function), *args, **kwargs)

    return call


def _as_it_was(function: object) -> object:
    """os.remove and its like itself, where ours is given:
    nothing is recorded then, and Python shows the function where it fails."""
    return (
        function.__wrapped__
        if type(function) is early_log.Method and type(function.__self__) is early_log.Of
        else function
    )
