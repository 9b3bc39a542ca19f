"""Optimizers and loaders that are made: who makes an optimizer is going to train, also in a process that
began as somebody's child."""

from __future__ import annotations

import os
from _thread import get_ident as _get_ident

from . import marks
from .wrapping import wrap

_late: object = None  # to be called at the first optimizer
_pid = os.getpid()
_watched = False
# to be called in a process of the script's that makes an optimizer, and is not its first
child_trains: object = None


def watch(late: object) -> None:
    """Count what is made; with `late`, only wait for the first optimizer, and call it then:
    nothing else is watched."""
    global _late, _watched
    from torch.optim import Optimizer
    _late = late
    if not _watched:
        _watched = True
        wrap(Optimizer, "__init__", _optimizer)
    if late is None:
        from torch.utils.data import DataLoader
        wrap(DataLoader, "__init__", _loader)
        _watch_ranks()


def _optimizer(real: object) -> object:
    def __init__(self, *args, **kwargs):
        global _late, _pid
        try:
            marks.seen["optimizers"] += 1
            if _late is not None and _is_main():
                call, _late = _late, None
                call()
                _tell()
            elif not marks.owner and _pid != os.getpid() and _late is None and _is_main():
                # a fork, and no loader's worker
                _pid = os.getpid()
                from . import book
                if book.again():
                    marks.begin_anew()
                _tell()
        except Exception as e:
            marks.broke(e)
        real(self, *args, **kwargs)
    return __init__


def _tell() -> None:
    if child_trains is not None:
        child_trains()


def _loader(real: object) -> object:
    def __init__(self, *args, **kwargs):
        real(self, *args, **kwargs)
        marks.seen["loaders"] += 1
    return __init__


def _watch_ranks() -> None:
    """A script that starts as many ranks as there are GPUs starts none on a machine without."""
    import sys
    module = sys.modules.get("torch.multiprocessing.spawn")  # torch.multiprocessing.spawn is the function
    if module is None:
        return
    wrap(module, "start_processes", _ranks)
    sys.modules["torch.multiprocessing"].start_processes = module.start_processes


def _ranks(real: object) -> object:
    def start_processes(fn, args=(), nprocs=1, *more, **named):
        marks.seen["no_ranks"] += not nprocs
        return real(fn, args, nprocs, *more, **named)
    return start_processes


def _is_main() -> bool:
    import threading
    return threading.main_thread().ident == _get_ident()
