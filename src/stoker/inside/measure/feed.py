"""What the script's loaders hand out, window by window:
their own batches, batches from memory, or those of a sibling loader.

An iterator of ours stands in for each of torch's.
It gives as many batches as the loader's own would, whatever they come from, so that epochs stay as long as
they are; where nothing of the loader is wanted, the loader's own iterator is not even made.
"""

from __future__ import annotations

import sys
import weakref

from ..clock import marks
from ..clock.passes import length_of, size_of
from ..entry.processes import now
from . import loader_facts, order
from .ring import Ring

# BOTH: from memory, while the loader's own batches are thrown away
REAL, RING, SIDE, BOTH = "real", "ring", "side", "both"
LENGTHS_MAX = 50  # passes whose length is remembered
LINES_MAX = 64

lines: dict = {}  # id of a loader that lives -> Line
_all: list = []  # the first ones, whether their loaders live or not
samples = batches = 0  # handed out to the training so far
_iter = _kind = None  # DataLoader.__iter__ as we found it; the class of our iterators
_installed = False


class Line:
    """One loader of the script, or all that are made one after the other at the same place in its code."""

    def __init__(self, loader: object, key: int) -> None:
        self.made_of(loader, key)
        self.source, self.sibling = REAL, None
        self.ring, self.collecting = Ring(), False
        self.train = False
        self.passes = self.batches = self.samples = 0
        self.lengths: list = []  # batches of whole passes
        self.starts: list = []  # s from the beginning of a pass to its first batch, with workers
        self.seen: tuple = ()  # of the dataset's attributes
        self.changed: set = set()
        self.current = None  # weakref to the pass that goes on
        self.rebuilt = False
        self.told: int | None = None  # batches of a pass, as the loader told
        self.about = _about(loader)

    def made_of(self, loader: object, key: int) -> None:
        """The loader that this line is now."""
        self.key = key
        self.loader = weakref.ref(
            loader, lambda _: lines.pop(key, None) if key in lines and lines[key].loader() is None else None
        )
        self.workers = int(getattr(loader, "num_workers", 0) or 0)
        self.prefetch = int(getattr(loader, "prefetch_factor", None) or 2)
        self.place = _place(loader)

    def is_train(self) -> bool:
        """Whether its batches are trained on."""
        loader = self.loader()
        self.train = self.train or (loader is not None and marks._trained.get(loader) is not None)
        return self.train

    def queue(self) -> int:
        """Batches that may lie ready in its workers' queue, from the source that it has now."""
        if self.source in (RING, BOTH):
            return 0
        loader = self.sibling if self.source == SIDE else self
        if self.source == SIDE:
            return int(getattr(loader, "num_workers", 0) or 0) * int(
                getattr(loader, "prefetch_factor", None) or 2
            )
        return self.workers * self.prefetch

    def length(self) -> int | None:
        """Batches of a whole pass, as far as that is known."""
        loader = self.loader()
        told = length_of(loader) if loader is not None else self.told
        self.told = told
        return told if told is not None else max(self.lengths, default=None)

    def close_side(self) -> None:
        """Let go of the sibling, and of its workers."""
        self.sibling = None
        way = self.current() if self.current else None
        if way is not None:
            way.end_side()


def install(torch: object) -> None:
    """Stand in for the iterators of all loaders. Before the clock is put in place:
    it measures what we hand out."""
    global _iter, _kind, _installed
    if _installed:
        return
    _installed = True
    from torch.utils.data import dataloader

    from ..clock.wrapping import dressed
    base = dataloader._BaseDataLoaderIter
    real_next, _iter = base.__next__, dataloader.DataLoader.__iter__
    _kind = _make(base)

    def __next__(self: object) -> object:
        return self._fetch() if type(self) is _kind else real_next(self)

    def __iter__(self: object) -> object:
        line = _line(self)
        return _iter(self) if line is None else _kind(line, self)

    base.__next__ = dressed(real_next, __next__)
    dataloader.DataLoader.__iter__ = dressed(_iter, __iter__)


def training() -> list:
    """The lines that the script trains on, as far as it has come."""
    return [line for line in _all if line.is_train()]


def main() -> Line | None:
    """Of the lines that it trains on, the one that most of the training comes from."""
    return max(training(), key=lambda line: (line.batches > 1.5 * line.passes, line.samples), default=None)


def known() -> list:
    """All lines, also of loaders that are gone."""
    return _all[:]


def _line(loader: object) -> Line | None:
    """The line of a loader whose pass begins; None where it is to be left alone."""
    try:
        if not marks.owner or sys.modules["torch"].utils.data.get_worker_info() is not None:
            return None
        key = id(loader)
        line = lines.get(key)
        if line is not None and line.loader() is loader:
            return line
        line = _follows(loader)
        if line is not None:
            line.rebuilt = True
            line.made_of(loader, key)
        elif len(_all) < LINES_MAX:
            line = Line(loader, key)
            _all.append(line)
        else:
            return None
        lines[key] = line
        return line
    except Exception as e:
        order.fault("a loader", e)
        return None


def _follows(loader: object) -> Line | None:
    """The line of the loader that this one replaces:
    made at the same place, once the training had begun, of the same kind."""
    place = _place(loader) if marks.steps else None
    for line in _all if place is not None else ():
        if line.place == place and (line.loader() is None or line.current is None or line.current() is None):
            return line
    return None


def _place(loader: object) -> tuple | None:
    from ..settings import sites
    site = sites.site_of(loader)
    return (
        None if site is None else (site.place, loader.batch_size, type(loader.dataset), type(loader.sampler))
    )


def _about(loader: object) -> dict:
    try:
        return loader_facts.about(loader)
    except Exception as e:
        order.fault("a loader", e)
        return {}


def _make(base: type) -> type:
    class Feed(base):  # a kind of torch's own, so that whoever asks sees one; its __next__ is `_fetch`
        """One pass over a loader."""

        def __init__(self, line: Line, loader: object) -> None:
            self._line, self._loader, self._num_workers = line, loader, getattr(loader, "num_workers", 0)
            self._given, self._mixed, self._real, self._side = 0, False, None, None
            self._began = now()
            line.passes += 1
            line.current = weakref.ref(self)
            try:
                _look_at_dataset(line, loader)
                line.length()
            except Exception as e:
                order.fault("a pass", e)
            if line.source == REAL:
                self._real = _iter(loader)

        def __iter__(self) -> object:
            return self

        def __len__(self) -> int:
            return len(self._loader._index_sampler)

        def __getattr__(self, name: str) -> object:
            real = self.__dict__.get("_real")
            if real is None or name.startswith("__"):
                raise AttributeError(name)
            return getattr(real, name)

        def _fetch(self) -> object:
            global samples, batches
            line = self._line
            source = line.source
            if self._mixed:
                most = line.length()
                if most is not None and self._given >= most:
                    raise StopIteration
            try:
                if source == REAL:
                    batch = self._own()
                else:
                    self._mixed = True
                    if source == BOTH:
                        self._throw_away()
                    batch = self._beside() if source == SIDE else self._from_memory()
            except StopIteration:
                if len(line.lengths) < LENGTHS_MAX:
                    line.lengths.append(self._given)
                raise
            self._given += 1
            size = size_of(batch)
            line.batches += 1
            line.samples += size
            if line.train:
                batches += 1
                samples += size
            return batch

        def _own(self) -> object:
            line = self._line
            if self._real is None:
                self._real = _iter(self._loader)
            batch = next(self._real)
            if not self._given and not self._mixed:
                line.starts.append((now() - self._began) / 1e9)
                del line.starts[:-LENGTHS_MAX]
            if line.collecting:
                line.ring.keep(batch)
            return batch

        def _from_memory(self) -> object:
            try:
                return self._line.ring.give()
            except Exception as e:
                order.fault("a batch from memory", e)
                self._line.source = REAL
                return self._own()

        def _throw_away(self) -> None:
            """Take a batch that lies ready in the queue, and forget it:
            its workers go on as if somebody trained on them."""
            if self._real is None:
                self._real = _iter(self._loader)
            queue = getattr(self._real, "_data_queue", None)
            if queue is None or queue.empty():
                return
            try:
                next(self._real)
            except StopIteration:
                self._real = _iter(self._loader)

        def _beside(self) -> object:
            if self._side is None:
                self._side = _iter(self._line.sibling)
            return next(self._side)

        def end_side(self) -> None:
            self._side = None

    return Feed


def _look_at_dataset(line: Line, loader: object) -> None:
    """Which attributes of the dataset the script sets between two passes."""
    said = getattr(loader.dataset, "__dict__", None)
    if not isinstance(said, dict):
        return
    plain = (int, float, str, bool, bytes, type(None))
    seen = {name: value if isinstance(value, plain) else id(value) for name, value in said.items()}
    if line.seen and line.seen[0] == id(loader.dataset):
        before = line.seen[1]
        line.changed.update(name for name in seen if name not in before or before[name] != seen[name])
    line.seen = (id(loader.dataset), seen)
