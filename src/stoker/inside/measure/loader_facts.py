"""What a loader is, by itself: its data set, its sampler, its workers."""

from __future__ import annotations

import sys

from ..clock.passes import length_of
from ..settings import loaders


def about(loader: object) -> dict:
    """All of it, for facts.json. No code of the script's but `__len__` of the data set is called."""
    data = loader.dataset
    stream = isinstance(data, sys.modules["torch"].utils.data.IterableDataset)
    transforms = getattr(data, "transform", None) or getattr(data, "transforms", None)
    dataset = {
        "type": type(data).__qualname__,
        "iterable": stream,
        "getitems": callable(getattr(data, "__getitems__", None)),
        "transforms": " ".join(str(transforms).split())[:300] if transforms is not None else "",
    }
    try:
        dataset["len"] = len(data)
    except Exception:  # a stream, or a length that nobody knows
        dataset["len"] = None
    batch = loader.batch_sampler
    own = batch is not None and type(batch).__name__ != "BatchSampler"
    return {
        **loaders.facts(loader),
        "workers": loader.num_workers,
        "prefetch": loader.prefetch_factor,
        "persistent": loader.persistent_workers,
        "pin": loader.pin_memory,
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        "len": length_of(loader),
        "sampler": type(batch if own else loader.sampler).__name__,
        "dataset": dataset,
        "collate": getattr(loader.collate_fn, "__qualname__", type(loader.collate_fn).__qualname__),
    }
