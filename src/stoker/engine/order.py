"""Which samples make which batch: the user's sampler and batch sampler, run under a derived seed.

A batch is the number of its place in the epoch. To go on at batch n costs nothing for the samplers of torch; samplers of the user's own
are asked for their indices again, and only indices are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, SequentialSampler

from stoker.engine import seeds

Indices = torch.Tensor | list | int


def index_batches(loader: DataLoader, place: int, skip: int) -> Iterator[Indices]:
    """The indices of batch `skip` and of those after it, of a loader over a map-style dataset. place: what order is derived from."""
    seed = seeds.mix(place, 0)
    for holder in (loader, loader.sampler, loader.batch_sampler):
        seeds.seed_own(holder, seed)
    if loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler:
        return islice(seeds.isolated(loader.batch_sampler, seed), skip, None)
    whole = _whole_order(loader, seed)
    size = 1 if loader.batch_sampler is None else loader.batch_sampler.batch_size
    drop = loader.batch_sampler is not None and loader.batch_sampler.drop_last
    if whole is not None:
        batches = _cut(whole, size, drop, skip)
    else:
        batches = _cut_drawn(islice(seeds.isolated(loader.sampler, seed), skip * size, None), size, drop)
    return (int(b[0]) for b in batches) if loader.batch_sampler is None else batches


def _whole_order(loader: DataLoader, seed: int) -> torch.Tensor | None:
    """The order of an epoch as one tensor, for the samplers of torch; None for others."""
    sampler = loader.sampler
    count = len(loader.dataset)
    shuffled = type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(sampler.data_source) == count
    if type(sampler) is DistributedSampler:  # Engine shares out batches itself
        shuffled = sampler.shuffle
    elif type(sampler) is not SequentialSampler and not shuffled:
        return None
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed)) if shuffled else torch.arange(count)


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
    """The counters and settings that a sampler holds as plain values: state, where its __iter__ changes them."""
    own = getattr(sampler, "__dict__", {})
    return {name: value for name, value in own.items() if isinstance(value, int | float | str | bool | None)}
