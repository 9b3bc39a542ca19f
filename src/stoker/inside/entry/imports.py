"""To be called when the script has imported a module, without importing it ourselves."""

from __future__ import annotations

import os
import sys

from .. import keeping_bytecode

TYPE_CHECKING = False  # typing and collections would be imported for nothing
if TYPE_CHECKING:
    from collections.abc import Callable

_write, _leave = os.write, os._exit  # before anybody replaces them
_waiting: dict[str, list[Callable]] = {}
_ahead: dict[str, list[Callable]] = {}


def after(name: str, call: Callable[[object], None]) -> None:
    """Call `call(module)` once the top-level module `name` is imported; at once if it is."""
    if name in sys.modules:
        call(sys.modules[name])
        return
    _await(name, _waiting, call)


def around(name: str, begins: Callable[[object], None], ends: Callable[[object], None]) -> None:
    """Call `begins(module)` just before the code of the module `name` is run, and `ends(module)` behind it;
    neither if it is imported already. Where that code fails, `begins` alone was called, and is again at the
    next attempt."""
    if name not in sys.modules:
        _await(name, _ahead, begins)
        _await(name, _waiting, ends)


def _await(name: str, where: dict[str, list[Callable]], call: Callable[[object], None]) -> None:
    where.setdefault(name, []).append(call)
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


class _Finder:
    """First in sys.meta_path while somebody waits. It finds nothing itself:
    it asks the others, and has their loader call us."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        if name not in _waiting:
            return None
        spec = _ask_the_others(name, path, target)
        run = getattr(spec and spec.loader, "exec_module", None)
        if run is None:
            return None
        loader = spec.loader

        def exec_module(module: object) -> None:
            for call in _ahead.get(name, ()):
                _fenced(call, module)
            try:
                run(module)
            finally:
                # the loader is as it was: pickles and resource readers see nothing of us
                del loader.exec_module
            _ahead.pop(name, None)
            for call in _waiting.pop(name, ()):
                _fenced(call, module)

        try:
            loader.exec_module = exec_module
        except AttributeError:  # a built-in loader has no room: nobody who waits for it is told
            return None
        return spec


def _fenced(call: Callable[[object], None], module: object) -> None:
    """A fault of ours is not one of the import's."""
    try:
        keeping_bytecode(call, module)
    except Exception as e:
        _write(
            2, f"stoker: a hook failed ({type(e).__name__}: {e}); the script continues without this "
               "hook\n".encode()
        )
        if os.environ.get("STOKER_AUDIT") == "child":
            _leave(1)  # as in sitecustomize.py


def _ask_the_others(name: str, path: object, target: object) -> object:
    for finder in sys.meta_path:
        find = None if finder is _Finder else getattr(finder, "find_spec", None)
        spec = find(name, path, target) if find else None
        if spec is not None:
            return spec
    return None
