"""Threads beside the training. One of the script's own is no obstacle if its code can be read to the end and
does nothing but wait, take from queues and send to sockets:
it reads what it likes and writes nothing that the training could see.
All its instructions, those of the functions that it calls, and all that it can reach are looked at before it
runs; what is not in the tables below is an obstacle. What it takes out of a queue cannot be foreseen:
while it runs, each call that its code makes is looked at as well.
"""

from __future__ import annotations

import dis
import functools
import queue
import sys
import threading
import types

from ...looks import isinstance
from ..core import leaves
from ..core.leaves import PLAIN

# libraries whose threads and programs only send what the script has told them
SENDERS = ("wandb", "opentelemetry", "prometheus_client")
_MODULES = frozenset("time json struct socket queue threading".split())
_WORDS = frozenset(
    """
    AF_INET AF_INET6 Empty SOCK_DGRAM SOCK_STREAM close connect create_connection decode dumps encode error
    format get get_nowait is_set join monotonic pack perf_counter send sendall sendto settimeout shutdown
    sleep socket split strip time timeout wait
""".split()
)  # attributes and methods, of whatever
_BUILTINS = frozenset("abs bool bytes float int isinstance len max min range repr round str tuple".split())
_WAITED_FOR = (threading.Event, queue.Queue, queue.LifoQueue, queue.SimpleQueue)
_CALLED = frozenset("threading queue socket json struct _weakrefset".split())  # parts of the standard library
# whose methods in C change nothing
_HELD = (str, bytes, int, float, bool, tuple, type(None), type, types.ModuleType)
_NOT_READ = (
    "GET_ITER",
    "FOR_ITER",
    "GET_AITER",
    "GET_YIELD",
    "YIELD_",
    "SEND",
    "RETURN_GENERATOR",
    "INPLACE_",
    "IMPORT_",
    "EXEC",
)
_INPLACE = 13  # from there on BINARY_OP changes what is on its left


def is_of(name: str, packages: tuple) -> bool:
    """Whether this file is one of these installed packages'."""
    _, _, inside = name.replace("\\", "/").rpartition("-packages/")
    return inside.partition("/")[0] in packages


def is_harmless(thread: threading.Thread) -> bool:
    """Before it is started, or while it is alive."""
    return _looked_at(thread) is not None


def watch(thread: threading.Thread, refuse: object) -> bool:
    """Whether it is harmless; if so, from its start on `refuse()` is called as soon as its code calls
    something that is not. What it has kept until then leads nowhere."""
    look = _looked_at(thread)
    if look is None or threading._profile_hook is not None:
        return False
    inner = thread._bootstrap_inner

    def first() -> None:
        del thread._bootstrap_inner
        sys.setprofile(functools.partial(_calls, look.codes, refuse))
        inner()

    thread._bootstrap_inner = first
    return True


def _looked_at(thread: threading.Thread) -> _Look | None:
    look, kind = _Look(), type(thread)
    if kind is threading.Thread:
        given = (*thread._args, *thread._kwargs.values())
        known = look.target(thread._target) and all(map(look.value, given))
    else:
        run = kind.__dict__.get("run")
        known = (
            threading.Thread in kind.__bases__
            and type(run) is types.FunctionType
            and look.function(run, thread)
        )
    return look if known else None


def _calls(codes: set, refuse: object, frame: types.FrameType, event: str, called: object) -> None:
    """A profile function: of the calls that the thread's own code makes, and of code of the script's that
    runs within others."""
    if event == "c_call":
        bad = frame.f_code in codes and not _is_known_in_c(called)
    elif event == "call" and frame.f_code not in codes:
        file = frame.f_code.co_filename
        by_it = frame.f_back is not None and frame.f_back.f_code in codes
        bad = not (leaves.is_library(file) or leaves.is_ours(file)) or (by_it and not _is_known_part(file))
    else:
        return
    if bad:
        sys.setprofile(None)
        refuse()


def _is_known_in_c(called: object) -> bool:
    owner = getattr(called, "__self__", None)
    return (
        type(owner) in _HELD
        or type(owner) in _WAITED_FOR
        or type(owner).__module__ in ("_socket", "socket", "_thread")
    )


def _is_known_part(file: str) -> bool:
    return leaves.is_ours(file) or any(
        part.partition(".")[0] in _CALLED for part in file.replace("\\", "/").split("/")[-2:]
    )


class _Look:
    def __init__(self) -> None:
        self.codes: set = set()
        self._known: set = set()

    def target(self, function: object) -> bool:
        """What a thread runs."""
        if type(function) is types.MethodType and type(function.__self__) is threading.Event:
            return function.__func__ is threading.Event.wait
        return type(function) in (types.FunctionType, types.MethodType) and self.value(function)

    def value(self, value: object) -> bool:
        """Whether a thread may have it at hand."""
        kind = type(value)
        if kind in PLAIN:
            return True
        if kind in (tuple, frozenset):
            return all(map(self.value, value))
        if kind is types.FunctionType:
            return self.function(value, None)
        if kind is types.MethodType:
            return isinstance(value.__self__, threading.Thread) and self.function(
                value.__func__, value.__self__
            )
        if kind is types.ModuleType:
            return value.__name__ in _MODULES
        if isinstance(value, type):
            return issubclass(value, BaseException) or (
                value.__module__ == "builtins" and value.__name__ in _BUILTINS
            )
        if kind is types.BuiltinFunctionType:
            return value.__module__ == "builtins" and value.__name__ in _BUILTINS
        return kind in _WAITED_FOR or _is_far(value)

    def function(self, function: types.FunctionType, owner: object) -> bool:
        if id(function) in self._known:
            return True
        self._known.add(id(function))
        self.codes.add(function.__code__)
        if leaves.is_library(function.__code__.co_filename):
            return False
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))  # noqa: B905 - Python 3.9
        given = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        return all(map(self.value, given)) and self._code(
            function.__code__, function.__globals__, cells, owner
        )

    def _code(self, code: types.CodeType, names: dict, cells: dict, owner: object) -> bool:
        return all(self._instruction(each, code, names, cells, owner) for each in dis.get_instructions(code))

    def _instruction(
        self, each: dis.Instruction, code: types.CodeType, names: dict, cells: dict, owner: object
    ) -> bool:
        word = each.opname
        if word.startswith(_NOT_READ) or (word == "BINARY_OP" and each.arg >= _INPLACE):
            return False
        if word.startswith(("STORE_", "DELETE_")):
            return "_FAST" in word or (word == "STORE_DEREF" and each.argval in code.co_cellvars)
        if word in ("LOAD_GLOBAL", "LOAD_NAME"):
            builtins = vars(sys.modules["builtins"])
            return self.value(names.get(each.argval, builtins.get(each.argval, self)))
        if (
            word.startswith("LOAD_")
            and each.argval in cells
            and each.argval in code.co_freevars
            and "FAST" not in word
        ):
            return self._cell(cells[each.argval])
        if word in ("LOAD_ATTR", "LOAD_METHOD"):
            return each.argval in _WORDS or self._own(owner, each.argval)
        if word.startswith("LOAD_") and "ATTR" in word:  # of super()
            return False
        return not isinstance(each.argval, types.CodeType)

    def _cell(self, cell: object) -> bool:
        try:
            return self.value(cell.cell_contents)
        except ValueError:  # empty so far
            return False

    def _own(self, owner: object, name: str) -> bool:
        """An attribute of the thread itself, or a method of its class."""
        if owner is None:
            return False
        if name in vars(owner):
            return self.value(vars(owner)[name])
        method = type(owner).__dict__.get(name)
        return type(method) is types.FunctionType and self.function(method, owner)


def _is_far(value: object) -> bool:
    """A socket whose other end this process has not made itself:
    what is sent there does not come back to the training."""
    socket = sys.modules.get("socket")
    if socket is None or type(value) is not socket.socket:
        return False
    if value.family != getattr(socket, "AF_UNIX", None):
        return True
    try:
        return bool(value.getpeername())
    except OSError:  # not connected yet
        return True
