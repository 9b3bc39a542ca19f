"""DataLoader workers: a signal that asks the training to end also reaches the workers, but they must work
until the training has saved.

`kill -TERM -PGID`, Ctrl-C, torchrun and Slurm signal every process.
A worker ignores these signals, and ends with the training.
"""

from __future__ import annotations

import atexit
import os
import signal
import weakref
from collections.abc import Callable, Iterable, Iterator

ASKED = (signal.SIGTERM, signal.SIGINT)
_running: weakref.WeakSet = weakref.WeakSet()  # iterators with workers


class Begin:
    """The first call in a worker: ignore the signals, then call the user's worker_init_fn.
    Pickled if workers are spawned."""

    def __init__(self, own: Callable[[int], None] | None) -> None:
        self.own = own

    def __call__(self, worker: int) -> None:
        for number in ASKED:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKED)
        if self.own is not None:
            self.own(worker)


def started(source: Iterable) -> Iterator:
    """`iter(source)`. If the source is a loader with workers,
    the workers ignore the signals from their start."""
    if not getattr(source, "num_workers", 0) or not hasattr(source, "worker_init_fn"):
        return iter(source)
    own = source.worker_init_fn
    source.worker_init_fn = Begin(own)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ASKED)  # a worker inherits this until it has begun
    try:
        iterator = iter(source)
    finally:
        source.worker_init_fn = own
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    for worker in getattr(iterator, "_workers", []):
        # torch terminates a worker that is stuck, and SIGTERM would not end it
        worker.terminate = worker.kill
    if hasattr(iterator, "_shutdown_workers"):
        _running.add(iterator)
    return iterator


def end() -> None:
    """End all workers: they finish their batch; a worker that takes longer than a few seconds is killed."""
    for iterator in list(_running):
        iterator._shutdown_workers()
    _running.clear()


os.register_at_fork(after_in_child=_running.clear)
atexit.register(end)  # is called before multiprocessing's own, which would wait for a worker that is stuck
