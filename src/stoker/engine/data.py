"""The sources that `engine.batches` accepts:
loaders over map-style datasets, tensors in memory, streams, and lists of batches.

A feed yields items (indices or whole batches) from any position, and turns items into batches.
The random numbers of a sample depend only on its place in the epoch, not on workers, prefetching or the
number of ranks.
"""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, islice
from typing import Any

import numpy
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Subset,
    TensorDataset,
    default_collate,
)

from stoker.engine import seeds, workers
from stoker.engine.dist import World
from stoker.engine.errors import InvalidSpec, StateError
from stoker.engine.order import Indices, index_batches, own_order, plain_values
from stoker.engine.progress import clock, say

TOLD_S = 2.0  # between two lines about batches that are read again
PROBE_S = 0.25
PROBED = 16  # samples


@dataclass(slots=True)
class Micro:
    """One micro-batch of this rank.

    number: the place of the micro-batch in the epoch, over all ranks. samples, slots:
    number of samples and micro-batches in the optimizer step, over all ranks. share:
    size of this micro-batch divided by the size of the first. last:
    True if the optimizer steps after this micro-batch. ghost: a
        repetition with weight 0, for a rank that has no micro-batch of its own in the last step of an epoch.
    """

    number: int
    item: object
    samples: int
    slots: int
    share: float
    last: bool
    ghost: bool


def micros(
    items: Iterator,
    size_of: Callable[[Any], int],
    skip: int,
    window: int,
    *,
    rank: int,
    ranks: int,
    ghosts: bool,
) -> Iterator[Micro]:
    """This rank's micro-batches. `window` micro-batches make one optimizer step;
    slot n belongs to rank n % ranks."""
    if window == 1:  # of one rank: most trainings, and nothing to share out
        for number, item in enumerate(items, skip):
            yield Micro(number, item, size_of(item), 1, 1.0, True, False)
        return
    first = skip
    while step := list(islice(items, window)):
        sizes = [size_of(item) for item in step]
        mine = range(rank, len(step), ranks)
        for slot in mine:
            yield Micro(
                first + slot,
                step[slot],
                sum(sizes),
                len(step),
                sizes[slot] / (sizes[0] or 1),
                slot == mine[-1],
                False,
            )
        if not mine and ghosts:
            yield Micro(first, step[0], sum(sizes), len(step), 0.0, True, True)
        first += len(step)


class Feed:
    """The base class: a plain list of batches."""

    source: Any  # here a sequence; each subclass reads another type
    notes: tuple[str, ...] = ()  # said at the start
    doubt = ""  # why a resume cannot be exact; empty if it can
    batch_size: int | None = None

    def __init__(self, source: Iterable) -> None:
        self.source = source
        self.name = type(source).__name__

    def length(self) -> int | None:
        """Number of batches in an epoch, over all ranks; None if unknown."""
        return len(self.source)

    def items(self, place: int, skip: int) -> Iterator:
        """Items from batch `skip` on."""
        return iter(self.source[skip:])

    def agreed(self, items: Iterator, world: World) -> Iterator:
        """The items, after a check that every rank gets the same items. Called on every rank."""
        return items

    def ahead(self) -> bool:
        """True if a batch may be read while the batch before it is in use."""
        return True

    def size(self, item: object) -> int:
        """Number of samples in the batch of this item."""
        return rows(item)

    def batches(self, place: int, shared: Iterator[Micro]) -> Iterator[tuple[Micro, object]]:
        """Yield each micro-batch of this rank with its data."""
        for micro in shared:
            yield micro, micro.item

    def begin(self, epoch: int) -> None:
        """An epoch starts: checkpoints within the epoch save the state of this moment."""

    def end(self) -> None:
        """The epoch ended, or its loop was left."""

    def state_dict(self) -> dict:
        """The state to restore before `items` is called."""
        return {}

    def load_state_dict(self, state: dict) -> None:
        """Restore what `state_dict` returned."""

    def fingerprint(self) -> dict:
        """A description of the data, to detect a change."""
        return {"batches": len(self.source)}


class Loader(Feed):
    """A DataLoader over a map-style dataset."""

    def __init__(self, source: DataLoader) -> None:
        super().__init__(source)
        self.dataset = source.dataset
        self.name = type(self.dataset).__name__
        self.batch_size = source.batch_size
        self.sampler = (
            source.sampler
            if source.batch_sampler is None or hasattr(source.batch_sampler, "sampler")
            else source.batch_sampler
        )
        self._own: seeds.Isolated | None = None  # what the sampler draws in this epoch
        self._before: dict | None = None  # the sampler when the epoch began
        self._resumed: dict | None = None  # the saved state of an epoch that goes on
        self._workers: tuple[_Queue, DataLoader] | None = None
        whole = hasattr(self.dataset, "__getitems__") and not isinstance(self.dataset, Subset)
        self.seeded = Seeded(self.dataset, source.collate_fn, source.batch_sampler is None, whole)
        notes = (
            [f"{self.name} fetches whole batches, so Engine sets seeds per batch, not per sample"]
            if whole
            else []
        )
        if isinstance(source.sampler, DistributedSampler):
            notes.append("Engine distributes batches over the ranks; DistributedSampler is not used")
        self.notes = tuple(notes)
        if not self.repeatable():
            self.doubt = (
                f"two fetches of one sample of {self.name} differ: the data set uses its own random generator"
            )

    def repeatable(self) -> bool:
        """True if a few samples are equal when they are fetched twice with the same seed."""
        try:
            count = len(self.dataset)
        except TypeError:
            return True
        started = time.monotonic()
        with seeds.bubble():
            for n in range(min(count, PROBED)):
                try:
                    seeds.seed_cpu(n)
                    one = self.dataset[n]
                    seeds.seed_cpu(n)
                    other = self.dataset[n]
                except Exception:  # it will fail, or not, when the loop asks
                    return True
                if not same(one, other):
                    return False
                if time.monotonic() - started > PROBE_S:
                    return True
        return True

    def length(self) -> int | None:
        try:
            return len(self.source)
        except TypeError:
            return None

    def items(self, place: int, skip: int) -> Iterator[Indices]:
        own = self._own = own_order(self.source, place)
        if self._resumed is not None:
            assert own is not None  # `drawn` was saved because the sampler draws by itself
            self._catch_up(own, self._resumed)
        return index_batches(self.source, place, skip, own)

    def _catch_up(self, own: seeds.Isolated, saved: dict) -> None:
        """Draw what was drawn. If the sampler is then another than the saved one,
        the script changed it meanwhile."""
        self._resumed = None
        own.pull(saved["drawn"])
        if not same(self._now(), saved["now"]):
            self._put(saved["now"])

    def agreed(self, items: Iterator, world: World) -> Iterator:
        return (
            items if self._own is None else _same_first(items, world, type(self.sampler).__name__)
        )

    def size(self, item: Indices) -> int:
        return 1 if isinstance(item, int) else len(item)

    def batches(self, place: int, shared: Iterator[Micro]) -> Iterator[tuple[Micro, object]]:
        place = seeds.mix(place, 1)
        orders = ((micro, (seeds.mix(place, micro.number), _listed(micro.item))) for micro in shared)
        if not self.source.num_workers:
            for micro, order in orders:
                yield micro, self.seeded.__getitems__(order)
            return
        if self._workers is None:
            queue = _Queue()
            self._workers = queue, _with_workers(self.source, self.seeded, queue)
        queue, inner = self._workers
        queue.orders = orders
        waiting = queue.waiting = deque()
        for batch in workers.started(inner):
            yield waiting.popleft(), batch

    def begin(self, epoch: int) -> None:
        if callable(getattr(self.sampler, "set_epoch", None)):
            self.sampler.set_epoch(epoch)
        if self._resumed is not None:  # a sampler that was set up by itself is the one of the save
            self._put(self._resumed)
        self._before = self._now()

    def end(self) -> None:
        self._before = self._own = None

    def _now(self) -> dict:
        if callable(getattr(self.sampler, "state_dict", None)):
            return {"sampler": copy.deepcopy(self.sampler.state_dict())}
        return {"values": plain_values(self.sampler)}

    def state_dict(self) -> dict:
        """State of the sampler at the start of the epoch (its order is drawn again from this state), and its
        current state."""
        if self._before is None or self._own is None:
            return self._now()
        return {**self._before, "now": self._now(), "drawn": self._own.pulled}

    def load_state_dict(self, state: dict) -> None:
        going_on = "now" in state and self._before is None
        self._resumed = state if going_on else None
        self._put(state if going_on else state.get("now", state))

    def _put(self, state: dict) -> None:
        if "sampler" in state and callable(getattr(self.sampler, "load_state_dict", None)):
            self.sampler.load_state_dict(copy.deepcopy(state["sampler"]))
        for name, value in state.get("values", {}).items():
            if name in getattr(self.sampler, "__dict__", {}):
                self.sampler.__dict__[name] = value

    def fingerprint(self) -> dict:
        return {
            "dataset": self.name,
            "samples": len(self.dataset),
            "ids": _ids(self.dataset),
            "batch": self.batch_size,
            "sampler": type(self.sampler).__name__,
        }


class InMemory(Loader):
    """A DataLoader over tensors in memory: one gather per batch, no workers, nothing per sample."""

    def __init__(
        self, source: DataLoader, tensors: tuple[torch.Tensor, ...], rows_of: torch.Tensor | None
    ) -> None:
        super().__init__(source)
        self.tensors = tensors
        self.rows_of = rows_of

    def repeatable(self) -> bool:
        return True

    def batches(self, place: int, shared: Iterator[Micro]) -> Iterator[tuple[Micro, object]]:
        for micro in shared:
            where = micro.item if isinstance(micro.item, torch.Tensor) else torch.as_tensor(micro.item)
            if self.rows_of is not None:
                where = self.rows_of[where]
            yield micro, [t.index_select(0, where) for t in self.tensors]


class Stream(Feed):
    """A source that can be read only from its start: an iterable dataset, or a loader of another library.

    If the source has state_dict, a resume continues at its position.
    Otherwise, a resume reads all batches before the position again.
    With several ranks, each rank reads the whole stream and keeps only its own batches, so samples and order
    are the same as with one rank.
    """

    def __init__(self, source: Iterable) -> None:
        super().__init__(source)
        dataset = getattr(source, "dataset", source)
        self.name = type(dataset).__name__
        self.batch_size = getattr(source, "batch_size", None)
        in_process = getattr(source, "num_workers", 0) == 0
        holders = [source, dataset] if in_process else [source]
        self.holder = next(
            (h for h in holders if hasattr(h, "state_dict") and hasattr(h, "load_state_dict")), None
        )
        self._restored = False
        self._speaks = True
        if self.holder is None:
            self.doubt = (
                f"{self.name} has no state_dict, so a resume reads all data again, from the start to the "
                "saved position"
            )

    def length(self) -> int | None:
        try:
            return len(self.source)
        except TypeError:
            return None

    def items(self, place: int, skip: int) -> Iterator:
        seeds.seed_own(self.source, seeds.mix(place, 0))
        fetch = seeds.mix(place, 1)
        seeds.seed_cpu(seeds.mix(place, 0))
        iterator = workers.started(self.source)
        at = skip if self._restored else 0
        self._restored = False
        began = told = time.monotonic()
        while True:
            seeds.seed_cpu(seeds.mix(fetch, at))
            try:
                batch = next(iterator)
            except StopIteration:
                return
            if at >= skip:
                yield batch
            elif self._speaks and time.monotonic() - told > TOLD_S:
                told = time.monotonic()
                left = clock((told - began) * (skip - at - 1) / (at + 1))
                say(f"{self.name}: read {at + 1:,} of {skip:,} batches again, {left} left")
            at += 1

    def agreed(self, items: Iterator, world: World) -> Iterator:
        self._speaks = world.rank == 0
        return _same_first(items, world, self.name)

    def ahead(self) -> bool:
        return self.holder is None  # its state would be that of the batch after

    def state_dict(self) -> dict:
        return {"stream": self.holder.state_dict()} if self.holder is not None else {}

    def load_state_dict(self, state: dict) -> None:
        if self.holder is not None and "stream" in state:
            self.holder.load_state_dict(state["stream"])
            self._restored = True

    def fingerprint(self) -> dict:
        return {"dataset": self.name, "batch": self.batch_size}


def _same_first(items: Iterator, world: World, name: str) -> Iterator:
    """The items. Raises StateError if a rank gets another first one than rank 0:
    then each would train on a part of its own part."""
    first = next(items, None)
    found = world.gather(digest(first))
    other = next((rank for rank, each in enumerate(found) if each != found[0]), None)
    if other is not None:
        raise StateError(
            f"{name} gives rank {other} different batches than rank 0.",
            hint=(
                "Give all batches to each rank, in the same order: the engine distributes the batches over "
                "the ranks."
            ),
        )
    return items if first is None else chain([first], items)


class Seeded:
    """A dataset that fetches and collates a batch with the seed given beside the indices.
    Attributes are those of the wrapped dataset."""

    _dataset: Dataset
    _collate: Callable[[Any], object]
    _single: bool
    _whole: bool

    def __init__(
        self, dataset: Dataset, collate: Callable[[Any], object], single: bool, whole: bool
    ) -> None:
        self.__dict__.update(_dataset=dataset, _collate=collate, _single=single, _whole=whole)

    def __getitems__(self, order: tuple[int, list]) -> object:
        seed, indices = order
        dataset = self._dataset
        if self._whole and not self._single:
            seeds.seed_cpu(seeds.mix(seed, 0))
            samples = dataset.__getitems__(indices)
        else:
            samples = []
            for n, index in enumerate(indices):
                seeds.seed_cpu(seeds.mix(seed, n))
                samples.append(dataset[index])
        seeds.seed_cpu(seeds.mix(seed, len(indices)))
        return self._collate(samples[0] if self._single else samples)

    def __getitem__(self, index: int) -> object:
        return self._dataset[index]

    def __len__(self) -> int:
        return len(self._dataset)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") or "_dataset" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._dataset, name, value)


class _Queue:
    """The batch sampler of the loader with workers:
    hands out this epoch's orders, and remembers which micro-batch each is."""

    def __init__(self) -> None:
        self.orders: Iterator = iter(())
        self.waiting: deque[Micro] = deque()

    def __iter__(self) -> Iterator:
        waiting = self.waiting
        for micro, order in self.orders:
            waiting.append(micro)
            yield order


def _with_workers(like: DataLoader, seeded: Seeded, queue: _Queue) -> DataLoader:
    return DataLoader(
        seeded,
        batch_sampler=queue,
        collate_fn=_as_it_is,
        num_workers=like.num_workers,
        pin_memory=like.pin_memory,
        timeout=like.timeout,
        worker_init_fn=like.worker_init_fn,
        multiprocessing_context=like.multiprocessing_context,
        prefetch_factor=like.prefetch_factor,
        persistent_workers=like.persistent_workers,
        generator=torch.Generator(),
    )


def _as_it_is(batch: object) -> object:
    return batch


def _listed(item: Indices) -> list:
    return (
        item.tolist() if isinstance(item, torch.Tensor) else [item] if isinstance(item, int) else list(item)
    )


def feed(source: object) -> Feed:
    """The feed for the argument of `batches`. Raises InvalidSpec if the argument cannot be iterated."""
    if isinstance(source, DataLoader) and (type(source) is DataLoader or not hasattr(source, "state_dict")):
        if isinstance(source.dataset, IterableDataset):
            return Stream(source)
        tensors, rows_of = _in_memory(source.dataset)
        if tensors and source.batch_size is not None and source.collate_fn is default_collate:
            return InMemory(source, tensors, rows_of)
        return Loader(source)
    if isinstance(source, list | tuple):
        return Feed(source)
    if isinstance(source, Iterable):
        return Stream(source)
    raise InvalidSpec(
        "engine.batches takes a DataLoader, a list of batches or another iterable, not a "
        f"{type(source).__name__}."
    )


def _in_memory(dataset: Dataset) -> tuple[tuple[torch.Tensor, ...], torch.Tensor | None]:
    """(tensors, which of their rows) if the dataset is nothing but rows of CPU tensors."""
    rows_of = None
    while type(dataset) is Subset:
        own = torch.as_tensor(dataset.indices, dtype=torch.int64)
        rows_of = own if rows_of is None else own[rows_of]
        dataset = dataset.dataset
    plain = type(dataset) is TensorDataset and all(
        t.device.type == "cpu" and t.layout == torch.strided for t in dataset.tensors
    )
    return (dataset.tensors, rows_of) if plain else ((), None)


def _ids(dataset: object) -> str:
    """A short hash of which samples a subset holds; empty for other datasets."""
    found = blake2b(digest_size=8)
    while isinstance(dataset, Subset):
        found.update(torch.as_tensor(dataset.indices, dtype=torch.int64).numpy().tobytes())
        dataset = dataset.dataset
    return found.hexdigest()


def rows(batch: object) -> int:
    """Samples in a batch: the first dimension of its first tensor; 1 if there is none."""
    if isinstance(batch, torch.Tensor):
        return len(batch) if batch.dim() else 1
    if isinstance(batch, list | tuple) and batch and isinstance(batch[0], torch.Tensor):
        return rows(batch[0])
    parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, list | tuple) else ()
    return next((rows(part) for part in parts if isinstance(part, torch.Tensor | list | tuple | dict)), 1)


def digest(value: object) -> bytes:
    """A short hash of the tensors, arrays, numbers and texts in a batch."""
    found = blake2b(digest_size=8)

    def add(part: object) -> None:
        if isinstance(part, torch.Tensor) and part.layout == torch.strided:
            found.update(f"{part.dtype}{tuple(part.shape)}".encode())
            found.update(part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        elif isinstance(part, numpy.ndarray) and part.dtype != object:
            found.update(f"{part.dtype}{part.shape}".encode() + part.tobytes())
        elif isinstance(part, int | float | str | bytes):
            found.update(repr(part).encode())
        elif isinstance(part, dict):
            add(list(part.items()))
        elif isinstance(part, list | tuple):
            for each in part:
                add(each)

    add(value)
    return found.digest()


def same(one: object, other: object) -> bool:
    """True if two samples are equal. Objects that compare only by identity count as equal."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and torch.equal(
            one.nan_to_num() if one.is_floating_point() else one,
            other.nan_to_num() if other.is_floating_point() else other,
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if type(one).__eq__ is object.__eq__:
        return type(one) is type(other)
    equal = one == other
    return bool(equal.all()) if hasattr(equal, "all") else bool(equal)


def move(batch: object, device: torch.device) -> object:
    """The batch with its tensors on the device, also those in lists, tuples and dicts."""
    if isinstance(batch, torch.Tensor):
        from_host = device.type == "cuda" and batch.device.type == "cpu" and batch.layout == torch.strided
        # only pinned memory is copied meanwhile
        return (batch.pin_memory() if from_host else batch).to(device, non_blocking=True)
    if isinstance(batch, dict):
        moved = {k: move(v, device) for k, v in batch.items()}
        return moved if type(batch) is dict else type(batch)(moved)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        make: Callable[..., object] = type(batch)  # a namedtuple takes its fields one by one
        return make(*(move(v, device) for v in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(move(v, device) for v in batch)
    return batch.to(device) if hasattr(batch, "to") and hasattr(batch, "device") else batch
