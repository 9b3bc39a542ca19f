"""What waits for a module inside a package,
and what stands aside while torch makes tables of its own functions."""

from __future__ import annotations

import importlib.abc
import sys

_put: list = []  # (home, name, torch's own, ours)


def put(home: object, name: str, ours: object) -> None:
    """Set an attribute of torch; torch's own is back while `stand_aside`."""
    _put.append((home, name, getattr(home, name, None), ours))
    setattr(home, name, ours)


def stand_aside(name: str, off: object) -> None:
    """The import of `name` sees torch as it is; `off()` gives a `with` in which nothing is pretended."""

    def around(run: object) -> object:
        def exec_module(module: object) -> None:
            for home, each, real, _ in reversed(_put):
                setattr(home, each, real)
            try:
                with off():
                    run(module)
            finally:
                for home, each, _, ours in _put:
                    setattr(home, each, ours)

        return exec_module

    if name not in sys.modules:
        sys.meta_path.insert(0, _Finder(name, around))


def when_imported(name: str, call: object) -> None:
    """`call(module)` after the import of `name` (dotted); at once if it is there."""
    if name in sys.modules:
        call(sys.modules[name])
        return

    def around(run: object) -> object:
        def exec_module(module: object) -> None:
            run(module)
            call(module)

        return exec_module

    sys.meta_path.insert(0, _Finder(name, around))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, around: object) -> None:
        self._name, self._around = name, around

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        import importlib.util

        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        spec.loader.exec_module = self._around(spec.loader.exec_module)
        return spec
