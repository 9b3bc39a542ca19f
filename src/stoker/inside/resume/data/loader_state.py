"""What has to be known about each iterator over a DataLoader, and about each sampler.
Both are numbered by their first use, which has the same order in each life.
"""

from __future__ import annotations

import contextlib
import marshal
import weakref
import zlib
from collections.abc import Iterator

from ...looks import WeakKeys, isinstance
from ..compute import call_writes
from ..core import internals, leaves, words
from ..state import changed, stack_values, watch
from . import samplers

tracks = stack_values.loaders  # iterator -> Track
# number -> (weak sampler, generator and data set, digest at its first use): samplers that were ever iterated
known: dict = {}
counts = {"iterators": 0, "samplers": 0}  # so far, those that are gone included
making = None  # the Track whose iterator is being made
rebuilding = None  # the same, when that one is to go on where it was
_guards = WeakKeys()  # loader -> the Watch over what its last workers were started with
_inside = WeakKeys()  # loader -> Inside
CAREFUL = 64  # batches of a loader
MOST_DRAWS = 1000  # each is some kilobytes of every image


class Track:
    """One iterator over a loader. `twin` is the loader as it was when the iterator was made."""

    def __init__(self, loader: object) -> None:
        counts["iterators"] += 1
        self.number = counts["iterators"]
        self.workers = loader.num_workers
        self.persistent = keeps_workers(loader)
        self.iterable = loader._dataset_kind == internals.data_module("dataloader")._DatasetKind.Iterable
        self.epoch = 0  # of a persistent iterator: how often it began again
        self.made = self.reset = None  # the global generators when it was made, and when it began again
        # the sampler before it was made, and before it began again
        self.made_sampler = self.reset_sampler = None
        # worker -> states of its generators after the last batch that arrived from it
        self.produced: dict = {}
        self.consumed: dict = {}  # the same, after the last one that the script got
        self.trouble = ""  # why no image can be taken while this iterator is open
        self.seed = None
        self.guard = None  # watches what the workers were started with
        self.inside = None  # an Inside
        self.counters = Counters(loader.dataset) if self.iterable and not self.workers else None
        self.generators = _own_generators(loader)
        self.own_last = None  # their states after the sampler last drew from them
        self.begin(loader)

    def begin(self, loader: object) -> None:
        """The first or the next epoch of this iterator begins."""
        self.twin = _twin(loader)
        # batches given, index batches drawn, checksums over those and over samples
        self.k = self.drawn = self.crc = self.sample = 0
        self.ended = self.held = False
        self._writers = None  # of the script's own code that reads batches in this process
        # (which index batch, own generators before it was drawn), where others had drawn from them in between
        self.own_draws: list = []
        # (which index batch, global generators before it was drawn), where drawing it moved them
        self.draws: list = []

    def may_go_on(self) -> bool:
        """Whether it can still give something, or its workers live on."""
        return self.persistent or not self.ended

    def feeds(self) -> list:
        twin = self.twin
        return [
            ("dataset", twin.dataset),
            ("collate_fn", twin.collate_fn),
            ("worker_init_fn", twin.worker_init_fn),
        ]

    def writers(self) -> object:
        """What runs in this process when a batch is read, as far as it is the script's own (call_writes.py);
        None if nothing does."""
        if self._writers is None:
            reads = () if self.workers else (self.twin.dataset, self.twin.collate_fn)
            self._writers = (
                call_writes.of_data(self.twin._index_sampler, reads)
                if self.counters or not self.iterable
                else ()
            )
        return self._writers or None

    def look(self, when: str) -> None:
        """At the way into and out of the loader."""
        if self.inside is None:
            self.inside = inside(self.twin)
        getattr(self.inside, when)()

    def drew(self, n: int, before: tuple, after: tuple) -> None:
        """Making the n-th was a draw from generators that the script may draw from in between."""
        if before != after:
            self.draws.append((n, tuple(b if b != a else None for b, a in zip(before, after))))  # noqa: B905
            if len(self.draws) > MOST_DRAWS:
                self.trouble = self.trouble or words.LOADER_DRAWS

    def own_states(self) -> list:
        return [internals.torch_rng(each) for each in self.generators]

    def drew_of_own(self, n: int, before: list, after: list) -> None:
        """As `drew`, for the sampler's own generators: several loaders may share one."""
        if before != after:
            if before != self.own_last:
                self.own_draws.append((n, before))
                if len(self.own_draws) > MOST_DRAWS:
                    self.trouble = self.trouble or words.LOADER_DRAWS
            self.own_last = after

    def as_watched(self) -> object:
        """For so long the guard sees nothing of what an iterable data set counts itself."""
        return contextlib.nullcontext() if self.counters is None else self.counters.as_watched()

    def changed(self) -> str:
        """Why what the workers were started with is not what this process has now, or ""."""
        with self.as_watched():
            found = "" if self.guard is None else self.guard.look(deep=True)
        if not found and self.counters is not None:
            found = self.counters.meddled()
        word = words.LOADER_CHANGED if self.workers else words.LOADER_CHANGES_ITSELF
        return word.format(what=found) if found else ""


class Counters:
    """What an iterable data set, read in this process, keeps about itself in plain attributes (epochs,
    samples, where it stands), and generators of random numbers that it holds itself.
    They may go on while it is read, for a reading from the start begins with what they were then;
    but not changed by others meanwhile."""

    def __init__(self, dataset: object) -> None:
        self._attributes = leaves.attributes(dataset) or {}
        self.made = self.watched = self._last = self.now()
        self._meddled: set = set()  # names of those that others changed

    def now(self) -> dict:
        """By their names: plain values, and of generators (word, state)."""
        found = {}
        for name, value in self._attributes.items():
            if type(value) in leaves.PLAIN:
                found[name] = value
            elif (state := samplers.generator_state(value)) is not None:
                found[name] = state
        return found

    def put(self, then: dict) -> None:
        """Make them what `now` gave: generators as far as they are there."""
        now = self.now()
        for name in [name for name, value in now.items() if name not in then and type(value) is not tuple]:
            del self._attributes[name]
        for name, value in then.items():
            there = now.get(name)
            if type(value) is tuple:
                if type(there) is tuple and there[0] == value[0]:
                    samplers.set_generator(self._attributes[name], value)
            elif type(there) is not tuple and (name in now or name not in self._attributes):
                self._attributes[name] = value

    def begin_watch(self) -> None:
        """The guard looks from now on."""
        self.watched = self._last = self.now()

    def before(self) -> None:
        """On the way into the loader."""
        self.meddled()

    def after(self) -> None:
        """On the way out."""
        self._last = self.now()

    def meddled(self) -> str:
        """The path of one that was changed outside of the loader since the guard began to look, or ""."""
        now, last = self.now(), self._last
        if now != last:
            self._meddled |= {name for name in now.keys() | last.keys() if name not in now or name not in last
                              or (now[name] is not last[name] and now[name] != last[name])}
        return f"dataset.{min(self._meddled)}" if self._meddled else ""

    @contextlib.contextmanager
    def as_watched(self) -> Iterator[None]:
        """For so long they are as they were when the guard began to look."""
        now, order = self.now(), list(self._attributes)
        self.put(self.watched)
        try:
            yield
        finally:
            self.put(now)
            for name in order:  # as they were put there
                self._attributes[name] = self._attributes.pop(name)


def _own_generators(loader: object) -> list:
    """torch's generators that the loader and its samplers draw from."""
    import torch
    found, thing = [loader.generator], loader._index_sampler
    for _ in range(4):
        held = leaves.attributes(thing) or {}
        found.append(held.get("generator"))
        thing = held.get("sampler")
    return list({id(each): each for each in found if type(each) is torch.Generator}.values())


class Inside:
    """Sees what the sampler, and without workers the data set, change about themselves while a batch is made:
    the walk must be told, since a ghost makes no batches.
    For the first batches, and when something new is seen, the script's own changes are told apart."""

    def __init__(self, loader: object) -> None:
        feeds = [("sampler", loader._index_sampler), ("generator", loader.generator)]
        if not loader.num_workers:
            feeds += [("dataset", loader.dataset), ("collate_fn", loader.collate_fn)]
        self._feeds = feeds
        self._known: set = set()
        self._careful = CAREFUL
        self._watch = watch.Watch(feeds)

    def before(self) -> None:
        if self._careful:
            self._watch.moved()

    def after(self) -> None:
        moved = self._watch.moved()
        new = [pair for pair in moved if (id(pair[0]), pair[1]) not in self._known]
        if self._careful:
            self._careful -= 1
            if new:
                changed.inside(new)
                self._known |= {(id(owner), name) for owner, name in new}
                self._watch = watch.Watch(self._feeds)  # what hangs on it may be new
        elif new:
            self._careful = 2


def inside(loader: object) -> Inside:
    found = _inside.get(loader)
    if found is None:
        found = _inside[loader] = Inside(loader)
    return found


def keeps_workers(loader: object) -> bool:
    return bool(loader.persistent_workers and loader.num_workers)


def track_of(iterator: object) -> Track | None:
    track = tracks.get(iterator)
    if track is None and making is not None and making.twin._index_sampler is iterator._index_sampler:
        return making
    return track


def still_open() -> list:
    """Tracks of the iterators that can still give something, or whose workers live on;
    in the order they were made."""
    found = [track for _, track in list(tracks.items()) if track.may_go_on()]
    return sorted(found, key=lambda track: track.number)


def worker_pids() -> set:
    """Of all workers of iterators that are still there."""
    return {process.pid for iterator in list(tracks) for process in iterator.__dict__.get("_workers", ())}


def guard(loader: object, track: Track) -> object:
    """A Watch over what is given to workers, or read by an iterable data set;
    kept over epochs while nothing changes."""
    found = _guards.get(loader)
    if found is not None:
        found.forgive_shared()
    if found is None or found.look(deep=True):
        found = _guards[loader] = watch.Watch(track.feeds(), files=track.iterable)
    return found


def sampler_state(loader: object) -> tuple:
    """(state or None, why it cannot be kept)."""
    try:
        return samplers.capture(loader._index_sampler, loader.generator, loader.dataset), ""
    except samplers.Unreadable as e:
        return None, words.SAMPLER_UNREADABLE.format(what=e)


def remember(loader: object, state: tuple | None = None) -> None:
    """A sampler stays known when no iterator of its is open: what its `__iter__` changed has to come back."""
    sampler = loader._index_sampler
    if any(sampler_of(entry) is sampler for entry in known.values()):
        return
    for n in [n for n, entry in known.items() if entry[0]() is None]:
        del known[n]
    counts["samplers"] += 1
    entry = _weakly(sampler) or weakref.ref(loader), _weakly(loader.generator), _weakly(loader.dataset)
    known[counts["samplers"]] = (*entry, None if state is None else samplers.digest(state))


def sampler_of(entry: tuple) -> object:
    thing = entry[0]()
    return (
        thing._index_sampler if isinstance(thing, internals.data_module("dataloader").DataLoader) else thing
    )


def capture(entry: tuple) -> tuple:
    """The state of a known sampler that is still there. Raises samplers.Unreadable."""
    return samplers.capture(sampler_of(entry), *(ref and ref() for ref in entry[1:3]))


def checksum(index: object, crc: int) -> int:
    """Over the indices of a batch, of whatever type."""
    try:
        return zlib.crc32(marshal.dumps(index, 2), crc)
    except ValueError:
        return zlib.crc32(marshal.dumps(_plainly(index), 2), crc)


@leaves.quietly
def sample(data: object, crc: int) -> int:
    """A checksum over a little of each part of a batch: a batch that is loaded again must be the same."""
    import torch
    if isinstance(data, torch.Tensor):
        flat = data.detach().reshape(-1)
        ends = (
            torch.cat([flat[:64], flat[-64:]]).cpu()
            if data.layout == torch.strided and data.numel()
            else None
        )
        told = b"" if ends is None else bytes(ends.contiguous().view(torch.uint8).tolist())
        return zlib.crc32(told + repr((tuple(data.shape), data.dtype)).encode(), crc)
    if isinstance(data, dict):
        for key, value in data.items():
            crc = sample(value, zlib.crc32(repr(key).encode(), crc))
        return crc
    if isinstance(data, (list, tuple)):
        for value in data:
            crc = sample(value, crc)
        return crc
    return (
        zlib.crc32(repr(data).encode(), crc)
        if isinstance(data, (int, float, str, bytes, bool, type(None)))
        else crc
    )


def _twin(loader: object) -> object:
    """The loader as it is now, without the iterator that it may hold:
    at the image the loader itself can be gone, or changed."""
    kind = internals.data_module("dataloader").DataLoader
    twin = kind.__new__(kind)
    twin.__dict__.update(loader.__dict__)
    twin.__dict__["_iterator"] = None
    return twin


def _weakly(thing: object) -> object:
    """None for what is None or knows no weak references (a list, a class with slots)."""
    try:
        return None if thing is None else weakref.ref(thing)
    except TypeError:
        return None


def _plainly(index: object) -> object:
    """Indices that are numpy integers, tensors or own classes, as plain values."""
    if isinstance(index, (list, tuple)):
        return [_plainly(each) for each in index]
    return index.tolist() if hasattr(index, "tolist") else repr(index)


def forget() -> None:
    """Hold nothing of the script's any more."""
    _inside.clear()
