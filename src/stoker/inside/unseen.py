"""How the modules of the hooks are loaded:
an exception that leaves one of their functions has no trace of that function.

A wrapper adds its frame to the traceback of what it calls.
Whoever looks at the exception then (the interpreter, `sys.exc_info`, logging, pdb) sees frames that plain
Python does not have. So each function is compiled as if it stood in a `try`,
whose handler takes the frame out
again: a bare `raise` adds none. That costs nothing unless an exception passes.

Not with STOKER_RESUME_DEBUG. The byte code stands beside Python's own, as `*.unseen.pyc`.
"""

from __future__ import annotations

import os
import sys

MARK = "__unseen__"  # in the globals of each module that is loaded so; not with STOKER_RESUME_DEBUG
_bootstrap = sys.modules["_frozen_importlib_external"]
_AST_ONLY = 0x400
_BEFORE_3_11 = sys.hexversion < 0x30B0000
_trace = BaseException.__traceback__
# No call in it: at the limit of recursion none would succeed. Reading `tb_frame` calls audit hooks, so the
# first entry, which is always the function's own, is not asked for it.
_HANDLER = f"""
try:
    pass
except BaseException as unseen_error:
    if type(unseen_error).__setattr__ is BaseException.__setattr__:
        unseen_trace = unseen_error.__traceback__
        if unseen_on and unseen_trace is not None:
            unseen_trace = unseen_trace.tb_next
        while unseen_trace is not None and {MARK!r} in unseen_trace.tb_frame.f_globals:
            unseen_trace = unseen_trace.tb_next
        unseen_error.__traceback__ = unseen_trace
        unseen_trace = None
    else:
        unseen_cut(unseen_error)
    raise
"""
_HANDLER_BEFORE_3_11 = """
try:
    pass
except BaseException as unseen_error:
    unseen_cut(unseen_error)
    raise
"""


def install() -> None:
    """Load the modules of this package so from here on."""
    _load_from(os.path.dirname(os.path.abspath(__file__)))


def leave_stacks(_process: object) -> None:
    """Whoever asks for the stack, not for a traceback, does not see these frames either:
    once these modules are imported."""
    from .entry import imports
    if not os.environ.get("STOKER_RESUME_DEBUG"):
        imports.after("traceback", _leave_walks)
        imports.after("inspect", _leave_outer)


def _leave_walks(traceback: object) -> None:
    real = traceback.walk_stack

    def walk_stack(f):
        return filter(_is_seen, real(f))  # no frame of ours in between: `real` counts those above it
    _put(traceback, walk_stack, real)


def _is_seen(found: tuple) -> bool:
    return MARK not in found[0].f_globals


def _leave_outer(inspect: object) -> None:
    real = inspect.getouterframes

    def getouterframes(frame, context=1):
        return [*filter(_is_seen, real(frame, context))]
    _put(inspect, getouterframes, real)


def _put(module: object, function: object, real: object) -> None:
    for word in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(function, word, getattr(real, word))
    function.__wrapped__ = real
    setattr(module, function.__name__, function)


def _load_from(folder: str) -> None:
    sys.path_importer_cache[folder] = _bootstrap.FileFinder(folder, (_Loader, [".py"]))


class _Loader(_bootstrap.SourceFileLoader):
    """Its byte code lies in files of its own: what a plain import leaves has no `try`, and must not be taken
    for it, nor the other way."""

    def get_data(self, path: str) -> bytes:
        return super().get_data(_apart(path))

    def set_data(self, path: str, data: bytes, *, _mode: int = 0o666) -> None:
        super().set_data(_apart(path), data, _mode=_mode)

    def source_to_code(self, data: bytes, path: str, *, _optimize: int = -1) -> object:
        tree = compile(data, path, "exec", _AST_ONLY, True)
        _cover(tree)
        return compile(tree, path, "exec", 0, True, optimize=_optimize)

    def exec_module(self, module: object) -> None:
        for folder in getattr(module, "__path__", ()):
            _load_from(folder)
        module.unseen_cut = _cut
        module.unseen_on = not os.environ.get("STOKER_RESUME_DEBUG")
        if module.unseen_on:
            vars(module)[MARK] = True
        super().exec_module(module)


def _apart(path: str) -> str:
    return f"{path[:-len('.pyc')]}.unseen.pyc" if path.endswith(".pyc") else path


def _cover(tree: object) -> None:
    """Put the body of each function into a `try`. Lambdas have no room for it:
    they are called by functions only."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        for name in node._fields:
            value = getattr(node, name, None)
            each = value if type(value) is list else (value,)
            waiting += [part for part in each if hasattr(part, "_fields")]
        if type(node).__name__ == "FunctionDef":
            _cover_function(node)


def _cover_function(node: object) -> None:
    handler = compile(_HANDLER_BEFORE_3_11 if _BEFORE_3_11 else _HANDLER, "", "exec", _AST_ONLY, True).body[0]
    _move(handler, node.body[-1].end_lineno)
    first = node.body[0]
    # its docstring stays there
    first = 1 if type(first).__name__ == "Expr" and type(getattr(first.value, "value", None)) is str else 0
    if node.body[first:]:
        handler.body = node.body[first:]
        node.body[first:] = [handler]


def _move(tree: object, line: int) -> None:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if hasattr(node, "lineno"):
            node.lineno = node.end_lineno = line
        for name in node._fields:
            value = getattr(node, name, None)
            each = value if type(value) is list else (value,)
            waiting += [part for part in each if hasattr(part, "_fields")]


def _without_ours(trace: object) -> object:
    while trace is not None and MARK in trace.tb_frame.f_globals:
        trace = trace.tb_next
    return trace


def _cut(error: BaseException) -> None:
    """As the handler does it by itself: for classes that take no assignments (frozen dataclasses)."""
    trace = _without_ours(_trace.__get__(error))
    _trace.__set__(error, trace)
    if not _BEFORE_3_11:
        return
    import ctypes  # there `raise` has the traceback from the thread's state, and only the C API can set that
    kind = type(error)
    for each in (kind, error, trace):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    ctypes.pythonapi.PyErr_SetExcInfo(
        ctypes.py_object(kind), ctypes.py_object(error), ctypes.py_object(trace)
    )
