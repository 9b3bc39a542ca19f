"""Bars of rich in a recorded training are drawn by the training thread, as those of tqdm are.
Threads of rich draw and count at moments that no other life finds again.
Here a bar moves when the script calls it, at most ten times a second; whether it moved is an event.
"""

from __future__ import annotations

import threading
import time
from _thread import get_ident
from weakref import WeakKeyDictionary

from ..core import early_log, phases

MOST_A_SECOND = 10  # rich's own default; Lightning asks for 100
_monotonic = getattr(time.monotonic, "__wrapped__", time.monotonic)  # the real one
# thread of rich that was not started -> when its work is due again
_due: WeakKeyDictionary = WeakKeyDictionary()


def install() -> None:
    """Before rich is imported or behind it; a rich without these parts keeps its threads,
    and is refused for them."""
    from ...entry import imports

    imports.after("rich.live", _watch_live)
    imports.after("rich.progress", _watch_progress)


def _watch_live(module: object) -> None:
    thread, live = getattr(module, "_RefreshThread", None), module.Live
    if thread is not None:
        # one that nobody calls would stand still
        _not_started(thread, lambda self: type(self.live._renderable).__name__ != "Spinner")
        _then_draw(live, "update", lambda self: self)


def _watch_progress(module: object) -> None:
    counter, progress = getattr(module, "_TrackThread", None), module.Progress
    for name in ("update", "advance", "reset"):
        _then_draw(progress, name, lambda self: self.live)
    if counter is not None:
        _not_started(counter, lambda self: True, _count_all)
        counter.completed = property(lambda self: self.__dict__.get("completed", 0), _counted)


def _not_started(kind: type, ours: object, at_end: object = None) -> None:
    """`start` and `join` of this kind of threads do nothing in a training thread that is recorded, where
    `ours(thread)` is true."""
    start, join = kind.start, kind.join

    def new_start(self: threading.Thread) -> None:
        if phases.phase and get_ident() == phases.main and ours(self):
            _due[self] = 0.0
        else:
            start(self)

    def new_join(self: threading.Thread, timeout: float | None = None) -> None:
        if self not in _due:
            join(self, timeout)
        elif at_end is not None:
            at_end(self)

    kind.start, kind.join = new_start, new_join


def _then_draw(kind: type, name: str, live_of: object) -> None:
    old = getattr(kind, name)

    def call(self: object, *args: object, **kwargs: object) -> object:
        try:
            return old(self, *args, **kwargs)
        finally:
            live = live_of(self)
            thread = live._refresh_thread
            if thread in _due and _is_due(thread, 1 / min(MOST_A_SECOND, live.refresh_per_second)):
                live.refresh()

    call.__name__, call.__doc__ = name, old.__doc__
    setattr(kind, name, call)


def _is_due(thread: threading.Thread, period: float) -> bool:
    here = early_log.mode("draws")
    if here >= early_log.GHOST:
        return early_log.take("draws")
    now = _monotonic()
    due = now >= _due[thread]
    if due:
        _due[thread] = now + period
    if here:
        early_log.put("draws", due)
    return due


def _counted(self: threading.Thread, completed: int) -> None:
    """The loop of `track` counts here; the bar is told at times, as the thread would do it."""
    self.__dict__["completed"] = completed
    if self in _due and _is_due(self, self.update_period):
        self.progress.update(self.task_id, completed=completed)


def _count_all(self: threading.Thread) -> None:
    self.progress.update(self.task_id, completed=self.completed, refresh=True)
