"""Ways through loaders: how many batches they have, whether somebody trains on them, how many samples are in a batch."""

from __future__ import annotations

import weakref

passes: dict = {}  # id of an iterator -> its Pass
trained: weakref.WeakSet = weakref.WeakSet()  # loaders whose batches were trained on


class Pass:
    """One way through a loader."""

    __slots__ = ("batches", "began", "first", "forget", "length", "loader", "number", "steady", "trained", "workers")

    def __init__(self, iterator: object, loader: object, length: int | None, began: int, number: int) -> None:
        key = id(iterator)
        self.forget = weakref.ref(iterator, lambda _: passes.pop(key, None))
        self.loader = weakref.ref(loader) if loader is not None else None  # it may go, and its workers with it
        self.length, self.began = length, began
        self.workers = getattr(iterator, "_num_workers", 0)
        self.number = number
        self.batches = 0
        self.first, self.steady = True, False
        self.trained = loader is not None and loader in trained
        passes[key] = self


def length_of(loader: object) -> int | None:
    """Batches of a whole pass, where asking is harmless: torch's own samplers ask the same of the data at each pass."""
    try:
        sampler = loader.batch_sampler
        known = all(type(each).__module__.startswith("torch.utils.data") for each in (sampler, sampler.sampler))
        return len(sampler) if known else None
    except Exception:  # none, or a length that nobody can tell
        return None


def size_of(data: object) -> int:
    """Samples in a batch: the first dimension of the first tensor in it."""
    try:
        return _first_dimension(data)
    except Exception:  # a kind of batch that nobody knows
        return 0


def _first_dimension(data: object) -> int:
    kind = type(data)
    if kind is list or kind is tuple:
        data = data[0] if data else None
    elif isinstance(data, dict):
        data = next(iter(data.values()), None)
    if hasattr(data, "shape"):
        return data.shape[0] if len(data.shape) else 1
    return len(data) if isinstance(data, (list, tuple)) else 1
