"""What runs inside the worker processes of a DataLoader:
torch's own worker loop, between two queues that carry more than they used to.

Each batch brings the state of the worker's random generators after it, and a word when something that feeds
it was seen to change.
Forked, spawned and fork-served workers are the same:
all they need, the state to begin with included, travels as an argument.
"""

from __future__ import annotations

import os
import sys

from ...looks import isinstance
from ..core import early_log, internals, phases
from ..world import effects, opening

_original = None  # torch's worker loop, while `Loop` stands in its place
# audit events: which argument is the path
_CHANGES = dict.fromkeys("os.truncate os.remove os.rmdir os.mkdir".split(), 0)
_CHANGES.update(dict.fromkeys("os.rename os.link os.symlink".split(), 1))
_NOBODYS = ("/dev/", "/proc/", os.path.expanduser("~/.cache/"), os.path.expanduser("~/.config/"))
WRITES = "something writes"  # into a file: how that word begins
NEWS = "_stoker_news"  # on what a worker sends instead of a batch


class Batch:
    """A batch on its way to the main process. `rngs`:
    (python, numpy, torch), None for what is as it was after the worker's last batch. `changed`:
    what was seen to change in the worker, for the first batch that saw it."""

    __slots__ = ("changed", "data", "rngs", "worker")

    def __init__(self, data: object, worker: int, rngs: tuple, changed: str) -> None:
        self.data, self.worker, self.rngs, self.changed = data, worker, rngs, changed

    def __reduce__(self) -> tuple:
        return Batch, (self.data, self.worker, self.rngs, self.changed)

    def pin_memory(self, *args: object) -> Batch:
        """Called by torch's pinning thread, as for any type it does not know."""
        from torch.utils.data._utils.pin_memory import pin_memory
        self.data = pin_memory(self.data, *args)
        return self


class Loop:
    """In the place of torch's worker loop, as the target of a worker process. `begin`:
    worker -> the states of its generators. `strays`:
    generators to watch besides; a worker that does not inherit them by a fork looks for its own."""

    __slots__ = ("begin", "strays")

    def __init__(self, begin: dict, strays: list | None = None) -> None:
        self.begin, self.strays = begin, strays

    def __reduce__(self) -> tuple:
        return Loop, (self.begin,)

    def __call__(self, *args: object) -> None:
        phases.turn_off()
        phases.again = False  # it may have been forked on the way back, but what it reads now is new
        loop = restore_loop()
        kind, dataset, tasks, results, done, batched, collate, drop_last, seed, prepare, worker, *rest = args
        feeds = [("dataset", internals.dataset_given(loop, dataset)), ("collate_fn", collate)]
        desk = _Desk(worker, feeds, self.strays, self.begin.get(worker))
        desk.listen()
        loop(
            kind,
            dataset,
            _Tasks(tasks, desk),
            _Results(results, desk),
            done,
            batched,
            collate,
            drop_last,
            seed,
            prepare,
            worker,
            *rest,
        )


def replace_loop(begin: dict) -> None:
    """Until `restore_loop()`, new workers run a `Loop`."""
    global _original
    from ..state import watch_kinds
    module = internals.data_module("_utils.worker")
    if not isinstance(module._worker_loop, Loop):
        _original = module._worker_loop
    module._worker_loop = Loop(begin, watch_kinds.strays())


def restore_loop() -> object:
    module = internals.data_module("_utils.worker")
    if isinstance(module._worker_loop, Loop):
        module._worker_loop = _original
    return module._worker_loop


class _Desk:
    """What a worker knows about its own generators and about what feeds it."""

    ready = False  # whether the first task has come

    def __init__(self, worker: int, feeds: list, strays: list | None, begin: tuple | None) -> None:
        self.worker, self._feeds, self._strays = worker, feeds, strays
        self._begin = begin
        self._last: tuple = (None, None, None)
        self._watch = None
        self._failed = ""
        self._told = False
        self._printed = ""  # a word about it
        self._wrote: str | None = ""  # the same; None once it was told

    def listen(self) -> None:
        """For files that the script's own code writes, and for what it prints: nobody could put that back."""
        sys.addaudithook(self._audit)  # of this process only
        effects.heard = lambda path: self._changes(path, sys._getframe(1))
        # by the process that has forked this one
        for each in opening.handles.opened() if opening.handles is not None else ():
            if each.writes:
                each.raw().write = self._around(each.raw().write, lambda path=each.path: self._writes(path))
        try:
            sys.stdout.write = self._around(sys.stdout.write, self._prints)
        except AttributeError:  # of another kind, or none
            pass

    def _around(self, write: object, note: object) -> object:
        def noted(data: object) -> object:
            note()
            return write(data)
        return noted

    def _prints(self) -> None:
        self._printed = "something prints"

    def _writes(self, path: str) -> None:
        if self._wrote == "":
            self._wrote = f"{WRITES} {path}"

    def _audit(self, event: str, args: tuple) -> None:
        if event in _CHANGES or (event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR)):
            path = args[_CHANGES.get(event, 0)]
            path = path if isinstance(path, str) else os.fsdecode(path) if isinstance(path, bytes) else ""
            self._changes(path, sys._getframe(1))

    def _changes(self, path: str, frame: object) -> None:
        """The script's own code, or a library that it has called, changes the file of this name;
        caches of libraries are their business."""
        if not path or path.startswith(_NOBODYS) or path.endswith(".pyc"):
            return
        # further out is what had been running when this was forked
        while frame is not None and frame.f_code is not Loop.__call__.__code__:
            if early_log.is_the_scripts(frame.f_code.co_filename):
                self._writes(path)
                return
            frame = frame.f_back

    def before_batch(self) -> None:
        if not self.ready:
            self._first()
        elif self._watch is not None:
            self._watch.forgive_shared()

    def after_batch(self) -> tuple:
        """(states of the generators, None for those that are as they were; what has changed)."""
        now = internals.rngs()
        rngs = tuple(None if a == b else a for a, b in zip(now, self._last))  # noqa: B905
        self._last = now
        if self._wrote:
            wrote, self._wrote = self._wrote, None
            return rngs, wrote
        return rngs, "" if self._told else self._change()

    def _first(self) -> None:
        """All is ready for the first batch: worker_init_fn has run."""
        self.ready = True
        if self._begin is not None:
            internals.set_rngs(self._begin)
        self._last = internals.rngs()
        try:
            from ..state import watch, watch_kinds

            self._watch = watch.Watch(
                self._feeds, watch_kinds.strays() if self._strays is None else self._strays, process=True
            )
        except Exception as e:
            self._failed = f"{type(e).__name__}: {e}"

    def _change(self) -> str:
        path, found = "", self._printed or self._failed
        try:
            path = self._watch.look() if self._watch is not None else ""
            found = found or self._watch.unreadable
        except Exception as e:
            found = found or f"{type(e).__name__}: {e}"
        self._told = bool(path or found)
        return f"{path} changes" if path else found


class _Tasks:
    """The queue that a worker takes its tasks from."""

    def __init__(self, queue: object, desk: _Desk) -> None:
        self._queue, self._desk = queue, desk

    def get(self, *args: object, **kwargs: object) -> object:
        task = self._queue.get(*args, **kwargs)
        if type(task) is tuple:
            self._desk.before_batch()
        return task

    def __getattr__(self, name: str) -> object:
        return getattr(self._queue, name)


class _Results:
    """The queue that a worker puts its batches in."""

    def __init__(self, queue: object, desk: _Desk) -> None:
        self._queue, self._desk = queue, desk

    def put(self, result: tuple, *args: object, **kwargs: object) -> None:
        number, data = result
        if type(number) is int:
            rngs, changed = self._desk.after_batch()
            if type(data).__module__.startswith("torch._utils") or type(data).__module__.startswith(
                "torch.utils.data._utils"
            ):
                # a failure, or the end of an iterable data set
                object.__setattr__(data, NEWS, (self._desk.worker, rngs, changed))
            else:
                data = Batch(data, self._desk.worker, rngs, changed)
        self._queue.put((number, data), *args, **kwargs)

    def __getattr__(self, name: str) -> object:
        return getattr(self._queue, name)
