"""Which samples make which batch: the user's sampler and batch sampler, run under a derived seed.

A batch is identified by its place in the epoch.
With torch's samplers, continuing at batch n costs nothing.
The user's own samplers draw their indices again; only indices are skipped, no samples are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TypeAlias

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, SequentialSampler

from stoker.engine import seeds

Indices: TypeAlias = torch.Tensor | list | int


def own_order(loader: DataLoader, place: int) -> seeds.Isolated | None:
    """What the user's own sampler or batch sampler draws in an epoch;
    None if the sampler is one of torch's."""
    seed = seeds.mix(place, 0)
    for holder in (loader, loader.sampler, loader.batch_sampler):
        seeds.seed_own(holder, seed)
    if _own_batches(loader):
        return seeds.Isolated(loader.batch_sampler, seed)
    return seeds.Isolated(loader.sampler, seed) if _shuffled(loader) is None else None


def _own_batches(loader: DataLoader) -> bool:
    return loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler


def index_batches(
    loader: DataLoader, place: int, skip: int, own: seeds.Isolated | None = None
) -> Iterator[Indices]:
    """The indices of batch `skip` and all later batches, for a loader over a map-style dataset. place:
    the source of the random order. own: the result of `own_order`.
    """
    if own is not None and _own_batches(loader):
        return islice(own, skip, None)
    size = 1 if loader.batch_sampler is None else loader.batch_sampler.batch_size
    drop = loader.batch_sampler is not None and loader.batch_sampler.drop_last
    if own is None:
        batches = _cut(_whole_order(loader, seeds.mix(place, 0)), size, drop, skip)
    else:
        batches = _cut_drawn(islice(own, skip * size, None), size, drop)
    return (int(b[0]) for b in batches) if loader.batch_sampler is None else batches


def _shuffled(loader: DataLoader) -> bool | None:
    """Is an epoch each sample once, shuffled or in order,
    as the samplers of torch say it? None for others."""
    sampler = loader.sampler
    if type(sampler) is DistributedSampler:  # Engine shares out batches itself
        return sampler.shuffle
    if type(sampler) is SequentialSampler:
        return False
    if type(sampler) is not RandomSampler or sampler.replacement:
        return None
    return True if sampler.num_samples == len(sampler.data_source) == len(loader.dataset) else None


def _whole_order(loader: DataLoader, seed: int) -> torch.Tensor:
    """The order of an epoch as one tensor."""
    count = len(loader.dataset)
    return (
        torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        if _shuffled(loader)
        else torch.arange(count)
    )


def _cut(order: torch.Tensor, size: int, drop: bool, skip: int) -> Iterator[torch.Tensor]:
    end = len(order) - len(order) % size if drop else len(order)
    for at in range(skip * size, end, size):
        yield order[at:at + size]


def _cut_drawn(indices: Iterator, size: int, drop: bool) -> Iterator[list]:
    while batch := list(islice(indices, size)):
        if drop and len(batch) < size:
            return
        yield batch


def plain_values(sampler: object) -> dict[str, object]:
    """The counters and settings that a sampler holds as plain values.
    They are state if its __iter__ changes them."""
    own = getattr(sampler, "__dict__", {})
    return {name: value for name, value in own.items() if isinstance(value, int | float | str | bool | None)}
