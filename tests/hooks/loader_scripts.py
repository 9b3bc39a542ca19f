"""Scripts that read loaders, for loader_lives.py. Each `script_*` yields what it was given; `expect` says what must become of it:
"exact" at each point, or a part of the sentence for which there are points without an image. Between batches they draw random numbers, as
training does."""

from __future__ import annotations

import collections
import functools
import itertools
import multiprocessing as mp
import os
import random

import numpy as np
import torch
from torch.utils.data import (
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
    WeightedRandomSampler,
    get_worker_info,
    random_split,
)

HERE = os.path.abspath(__file__)
GLOBAL_RNG = np.random.default_rng(5)


def expect(what: str):
    def mark(script):
        script.expected = what
        return script
    return mark


def read(loader, epochs=2):
    for _ in range(epochs):
        for batch in loader:
            torch.rand(2), random.random(), np.random.rand()
            yield batch


class Augmented(Dataset):
    """Draws from all three global generators."""

    def __init__(self, n=22):
        self.x = torch.arange(n * 3.0).reshape(n, 3)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] + random.random() + float(np.random.randn()) + torch.rand(3), i


class Called(Dataset):
    """`value(i)` is what a sample is."""

    def __init__(self, value=None):
        if value is not None:
            self.value = value

    def __len__(self):
        return 24

    def __getitem__(self, i):
        return torch.tensor([float(i), float(self.value(i))])


def by_workers(dataset, epochs=2, **more):
    return read(DataLoader(dataset, 4, num_workers=2, **more), epochs)


# ---- the grid: workers x persistent x order; written out by `grid()`

class OwnOrder(Sampler):
    """Keeps generators and a count of its own; not a generator function."""

    def __init__(self):
        self.rng, self.other, self.epoch = np.random.default_rng(1), random.Random(3), 0

    def __len__(self):
        return 22

    def __iter__(self):
        self.epoch += 1
        order = list(self.rng.permutation(22))
        self.other.shuffle(order)
        return iter(order)


class Buckets:
    """Shuffles its own list in place, when the first batch is asked for."""

    def __init__(self):
        self.buckets = [list(range(i, i + 4)) for i in range(0, 20, 4)]

    def __len__(self):
        return len(self.buckets)

    def __iter__(self):
        random.shuffle(self.buckets)
        yield from self.buckets


ORDERS = {
    "shuffle": lambda: {"batch_size": 4, "shuffle": True},
    "generator": lambda: {"batch_size": 4, "shuffle": True, "generator": torch.Generator().manual_seed(3)},
    "replacement": lambda: {"batch_size": 4, "sampler": RandomSampler(range(22), replacement=True, num_samples=40,
                                                                      generator=torch.Generator().manual_seed(3))},
    "own": lambda: {"batch_size": 4, "sampler": OwnOrder()},
    "buckets": lambda: {"batch_sampler": Buckets()},
}


def one_of_grid(workers, persistent, order):
    def script():
        return read(DataLoader(Augmented(), num_workers=workers, persistent_workers=persistent, **ORDERS[order]()), 3)
    script.expected = "exact"
    return script


for _workers, _persistent, _order in itertools.product((0, 1, 2, 3), (False, True), ORDERS):
    if _workers or not _persistent:
        globals()[f"grid_{_workers}{'p' if _persistent else ''}_{_order}"] = one_of_grid(_workers, _persistent, _order)


# ---- ways to use a loader

@expect("exact")
def script_spawned():
    return read(DataLoader(Augmented(), 4, shuffle=True, num_workers=2, multiprocessing_context="spawn", persistent_workers=True), 2)


@expect("exact")
def script_fork_served():
    return read(DataLoader(Augmented(), 8, shuffle=True, num_workers=2, multiprocessing_context="forkserver"), 1)


@expect("exact")
def script_options():
    return read(DataLoader(Augmented(), 4, shuffle=True, num_workers=2, prefetch_factor=4, pin_memory=True, drop_last=True, timeout=60))


def seed_it_anew(worker):
    random.seed(worker)
    torch.manual_seed(5 + worker)


@expect("exact")
def script_worker_init():
    return read(DataLoader(Augmented(), 3, num_workers=2, worker_init_fn=seed_it_anew, persistent_workers=True))


@expect("exact")
def script_no_batches():
    return read(DataLoader(Augmented(), batch_size=None, sampler=[3, 1, 2, 9, 4], num_workers=1))


@expect("exact")
def script_plain_list():
    return read(DataLoader([torch.tensor([i]) for i in range(20)], batch_size=3, drop_last=True, shuffle=True))


@expect("exact")
def script_zip():
    g = torch.Generator().manual_seed(5)
    one = DataLoader(Augmented(), 4, shuffle=True, generator=g, num_workers=2)
    other = DataLoader(Augmented(20), 3, shuffle=True, generator=g)
    for _ in range(2):
        for pair in zip(one, other):  # noqa: B905
            yield list(pair)
            torch.rand(1)


@expect("exact")
def script_same_loader_twice():
    loader = DataLoader(Augmented(), 4, shuffle=True, num_workers=1)
    for pair in zip(loader, loader):  # noqa: B905
        yield list(pair)


@expect("exact")
def script_train_and_validate():
    g = torch.Generator().manual_seed(5)
    train = DataLoader(Augmented(), 4, sampler=RandomSampler(range(22), replacement=True, num_samples=40, generator=g))
    validate = DataLoader(Augmented(20), 5, num_workers=1)
    for _ in range(2):
        for i, batch in enumerate(train):
            yield batch
            if i % 4 == 3:
                yield from validate


@expect("exact")
def script_made_each_epoch():
    for _ in range(3):
        yield from DataLoader(Augmented(), 4, shuffle=True, num_workers=1)


@expect("exact")
def script_dropped_half_way():
    loader = DataLoader(Augmented(), 4, shuffle=True, num_workers=2, persistent_workers=True)
    for _ in range(4):
        for i, batch in enumerate(loader):
            yield batch
            if i == 2:
                break


@expect("exact")
def script_by_hand():
    loader = DataLoader(Augmented(), 4, shuffle=True)
    batches = iter(loader)
    for _ in range(12):
        torch.rand(1)
        yield next(iter(loader))
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(loader)
            batch = next(batches)
        yield batch


@expect("exact")
def script_late_first_batch():
    first, second = iter(DataLoader(Augmented(), 4, shuffle=True)), iter(DataLoader(Augmented(), 4, shuffle=True, num_workers=1))
    torch.rand(5)
    for _ in range(5):
        yield next(second)
        torch.rand(1)
        yield next(first)


@expect("exact")
def script_joined_sets():
    one, other = random_split(ConcatDataset([Augmented(10), Subset(Augmented(), [5, 1, 2, 7, 9])]), [10, 5])
    yield from read(DataLoader(one, 2, shuffle=True, num_workers=2))
    yield from read(DataLoader(other, 2, sampler=WeightedRandomSampler(torch.arange(5.0) + 1, 9)))


class Named(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        return {"x": torch.randn(2), "name": f"name{i}", "more": [i, (i, 2.5)]}


@expect("exact")
def script_named_batches():
    return read(DataLoader(Named(), 3, shuffle=True, num_workers=1))


class OwnLoader(DataLoader):
    """A loader that goes on for ever with the same workers, as some trainers have."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        object.__setattr__(self, "batch_sampler", _Repeat(self.batch_sampler))
        self.batches = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.batches)


class _Repeat:
    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from iter(self.sampler)


@expect("exact")
def script_endless_loader():
    return read(OwnLoader(Augmented(), 4, shuffle=True, num_workers=2), 3)


# ---- iterable data sets

class Numbers(IterableDataset):
    def __init__(self, draw=None, n=26):
        self.draw, self.n = draw, n

    def __iter__(self):
        info = get_worker_info()
        start, step = (0, 1) if info is None else (info.id, info.num_workers)
        for i in range(start, self.n, step):
            yield torch.tensor([float(i), self.draw() if self.draw else 0.0])


@expect("exact")
def script_iterable():
    return read(DataLoader(Numbers(), 4))


class Counting(IterableDataset):
    def __init__(self):
        self.epoch, self.given, self.level = 0, 0, 0.0

    def __iter__(self):
        self.epoch += 1
        self.turn = 0
        for _ in range(26):
            self.given += 1
            self.turn += 1
            yield torch.tensor([float(self.epoch), float(self.given), self.level])


@expect("exact")
def script_iterable_that_counts():
    return read(DataLoader(Counting(), 4))


class Drawing(IterableDataset):
    def __init__(self, rng):
        self.rng, self.epoch = rng, 0

    def __iter__(self):
        self.epoch += 1
        for _ in range(14):
            yield torch.tensor([float(self.epoch), self.rng.random()])


@expect("exact")
def script_iterable_that_draws_itself():
    yield from read(DataLoader(Drawing(random.Random(3)), 3))
    yield from read(DataLoader(Drawing(np.random.default_rng(3)), 3))


@expect("dataset.rng changes while the iterable data set is read")
def script_iterable_drawn_from():
    data = Drawing(random.Random(3))
    for batch in DataLoader(data, 3):
        yield batch
        data.rng.random()


@expect("dataset.level changes while the iterable data set is read")
def script_iterable_that_is_told():
    data = Counting()
    for _ in range(2):
        for i, batch in enumerate(DataLoader(data, 4)):
            yield batch
            data.level = i / 2


@expect("exact")
def script_iterable_chain():
    return read(DataLoader(ChainDataset([Numbers(), Numbers(n=5)]), 4, drop_last=True))


@expect("exact")
def script_iterable_workers_draw():
    return read(DataLoader(Numbers(np.random.rand), 4, num_workers=2))


@expect("exact")
def script_iterable_draws():
    return read(DataLoader(Numbers(np.random.rand), 4))


@expect("changes while the iterable")
def script_iterable_own_rng():
    return read(DataLoader(Numbers(random.Random(2).random), 4))


@expect("persistent workers read an iterable data set")
def script_iterable_persistent():
    return read(DataLoader(Numbers(), 4, num_workers=2, persistent_workers=True))


# ---- state where it can be lost: noticed, each

class OwnRng:
    def __init__(self):
        self.rng = np.random.default_rng(3)

    def __call__(self, i):
        return self.rng.random()


class Chain:
    def __init__(self, *parts):
        self.parts = parts

    def __call__(self, i):
        for part in self.parts:
            i = part(i)
        return i


@expect("dataset.value.parts[0].rng changes")
def script_transform_rng():
    return by_workers(Called(Chain(OwnRng())))


@expect("GLOBAL_RNG changes")
def script_module_rng():
    return by_workers(Called(lambda i: GLOBAL_RNG.random()))


@expect("dataset.value[0] changes")
def script_closure_rng():
    mine = random.Random(3)
    return by_workers(Called(lambda i: mine.random()))


@expect("dataset.value[0] changes")
def script_default_rng():
    def value(i, rng=random.Random(4)):
        return rng.random()
    return by_workers(Called(value))


@expect("changes")
def script_torch_generator():
    g = torch.Generator().manual_seed(3)
    return by_workers(Called(lambda i: torch.rand(1, generator=g)))


class Counts(Called):
    seen = 0

    def value(self, i):
        self.seen += 1
        return self.seen


class ClassCounts(Called):
    seen = 0

    def value(self, i):
        ClassCounts.seen += 1
        return self.seen


class SlotCounts:
    __slots__ = ("seen",)

    def __init__(self):
        self.seen = 0

    def __call__(self, i):
        self.seen += 1
        return self.seen


@expect("dataset.seen changes")
def script_counter():
    return by_workers(Counts())


@expect("ClassCounts.seen changes")
def script_class_counter():
    return by_workers(ClassCounts())


@expect("dataset.value.seen changes")
def script_slot_counter():
    return by_workers(Called(SlotCounts()), persistent_workers=True)


class Caches(Called):
    def __init__(self):
        self.cache = {}

    def value(self, i):
        return self.cache.setdefault(i, random.random())


@expect("dataset.cache changes")
def script_cache():
    return by_workers(Caches())


@functools.lru_cache(None)
def remembered(i):
    return random.random()


@expect("changes")
def script_lru_cache():
    return by_workers(Called(remembered))


class InPlace(Called):
    def __init__(self, memory):
        self.memory = memory

    def value(self, i):
        self.memory[0] += 1
        return self.memory[0]


@expect("dataset.memory changes")
def script_array():
    return by_workers(InPlace(np.zeros(24)))


@expect("dataset.memory changes")
def script_tensor():
    return by_workers(InPlace(torch.zeros(24)))


@expect("dataset.memory changes")
def script_long_list():
    return by_workers(InPlace([0.0] * 5000))


@expect("changes")
def script_worker_writes_shared():
    shared = torch.zeros(24).share_memory_()
    return by_workers(Called(lambda i: float(shared[i].add_(1).isnan())))


@expect("changes")
def script_deque():
    ring = collections.deque([1.0, 2.0, 3.0])
    return by_workers(Called(lambda i: ring.rotate(1) or ring[0]))


@expect("changes")
def script_norm_in_transform():
    norm = torch.nn.BatchNorm1d(1)
    return by_workers(Called(lambda i: norm(torch.ones(4, 1) + i).sum()))


class CountingCollate:
    def __init__(self):
        self.calls = 0

    def __call__(self, samples):
        self.calls += 1
        return torch.stack(samples) + self.calls


@expect("collate_fn.calls changes")
def script_collate():
    return by_workers(Called(float), collate_fn=CountingCollate())


@expect("an iterator")
def script_generator_in_dataset():
    numbers = (x * 2.0 for x in range(10**6))
    return by_workers(Called(lambda i: next(numbers)))


@expect("an iterator")
def script_count_in_dataset():
    numbers = itertools.count()
    return by_workers(Called(lambda i: next(numbers)))


class Reads(Called):
    """Opens its file in the worker, as h5py and lmdb users do."""

    file = None

    def value(self, i):
        if self.file is None:
            self.file = open(HERE, "rb")  # noqa: SIM115
        self.file.seek(i)
        return self.file.read(1)[0]


@expect("exact")
def script_late_handle():
    return by_workers(Reads())


class Flagged(Called):
    def __init__(self, flag):
        self.flag = flag

    def value(self, i):
        return self.flag.value + random.random()


@expect("exact")
def script_attribute_between_epochs():
    dataset = Called(None)
    dataset.value = lambda i: dataset.epoch + random.random()
    loader = DataLoader(dataset, 4, num_workers=2)
    for dataset.epoch in range(3):
        yield from loader


@expect("dataset.epoch was changed, but the loader's workers")
def script_attribute_within_epoch():
    dataset = Called(None)
    dataset.epoch = 0
    dataset.value = lambda i: dataset.epoch + random.random()
    loader = DataLoader(dataset, 4, num_workers=2)
    for epoch in range(2):
        for i, batch in enumerate(loader):
            if i == 2:
                dataset.epoch = 10 * (epoch + 1)
            yield batch


@expect("was changed, but the loader's workers")
def script_shared_within_epoch():
    dataset = Flagged(mp.Value("d", 1.0))
    for epoch in range(2):
        for i, batch in enumerate(DataLoader(dataset, 4, num_workers=2)):
            if i == 3:
                dataset.flag.value = 7.0 + epoch
            yield batch[:, 0]


@expect("which other processes may change")
def script_event_in_dataset():
    dataset = Flagged(mp.Value("d", 1.0))
    dataset.pause = mp.Event()
    return by_workers(dataset)


class Lazy(Sampler):
    def __init__(self, n=22):
        self.n = n

    def __len__(self):
        return self.n

    def __iter__(self):
        for _ in range(self.n):
            yield random.randrange(22)


@expect("exact")
def script_sampler_draws():
    return read(DataLoader(Augmented(), 4, sampler=Lazy()))


@expect("exact")
def script_sampler_draws_for_workers():
    return by_workers(Augmented(), sampler=Lazy(), persistent_workers=True)


@expect("draws too many numbers from a random generator")
def script_sampler_draws_too_often():
    return read(DataLoader(Augmented(), 1, sampler=Lazy(1020)), 1)


class HoldsIterator(Sampler):
    def __init__(self):
        self.numbers = itertools.cycle(range(22))

    def __len__(self):
        return 12

    def __iter__(self):
        return itertools.islice(self.numbers, 12)


@expect("a sampler cannot be saved")
def script_sampler_holds_iterator():
    return read(DataLoader(Augmented(), 4, sampler=HoldsIterator()))


# ---- refused for good

@expect("in_order=False")
def script_any_order():
    for _ in DataLoader(Augmented(), 4, num_workers=2, in_order=False):
        yield 1


class Broken(Called):
    def value(self, i):
        if i == 9:
            raise ValueError("bad sample")
        return i


@expect("a DataLoader raised an error")
def script_error_caught():
    batches = iter(DataLoader(Broken(), 4, num_workers=2))
    while True:
        try:
            yield next(batches)
        except StopIteration:
            return
        except ValueError:
            yield "error"


class HalfOwn(DataLoader):
    def _get_iterator(self):
        return super()._get_iterator()


@expect("overrides _get_iterator")
def script_own_iterators():
    return read(HalfOwn(Augmented(), 4))
