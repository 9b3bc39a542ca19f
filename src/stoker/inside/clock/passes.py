"""Ways through loaders: how many batches they have, whether somebody trains on them,
how many samples are in a batch."""

from __future__ import annotations

import sys
import weakref

from ..looks import WeakKeys, isinstance

passes: dict = {}  # id of an iterator -> its Pass
trained = WeakKeys()  # loaders whose batches were trained on


class Pass:
    """One way through a loader."""

    __slots__ = (
        "batches",
        "began",
        "each",
        "first",
        "forget",
        "key",
        "last",
        "length",
        "loader",
        "number",
        "steady",
        "trained",
        "workers",
    )

    def __init__(self, iterator: object, loader: object, length: int | None, began: int, number: int) -> None:
        self.key = key = id(iterator)
        self.forget = weakref.ref(iterator, lambda _: forget(key))
        # it may go, and its workers with it
        self.loader = weakref.ref(loader) if loader is not None else None
        self.length, self.began = length, began
        self.workers = getattr(iterator, "_num_workers", 0)
        self.number = number
        self.batches = 0
        self.each = self.last = 0  # samples in each batch that comes before the `last` one
        self.first, self.steady = True, False
        self.trained = loader is not None and trained.get(loader) is not None
        passes[key] = self

    def is_trained_on(self) -> None:
        """A batch of it was trained on: its loader is no loader for evaluation."""
        if not self.trained:
            self.trained = True
            loader = self.loader and self.loader()
            if loader is not None:
                trained[loader] = True

    def sized(self, samples: int) -> None:
        """So many samples were in a batch. Where torch's own sampler makes batches of that size, the next
        ones need not be looked at."""
        sampler = _batch_sampler(self.loader and self.loader())
        if sampler is not None and type(sampler).__name__ == "BatchSampler" and sampler.batch_size == samples:
            self.each, self.last = samples, len(sampler)


def forget(key: int) -> None:
    """The iterator with this id is gone, or begins anew."""
    way = passes.pop(key, None)
    if way is not None:
        way.key = 0


def length_of(loader: object) -> int | None:
    """Batches of a whole pass, where asking is harmless:
    torch's own samplers ask the same of the data at each pass."""
    sampler = _batch_sampler(loader)
    return None if sampler is None else len(sampler)


def _batch_sampler(loader: object) -> object:
    """What makes a loader's batches, if that is torch's own and knows how many there are."""
    try:
        sampler = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
        known = all(
            type(each).__module__.startswith("torch.utils.data") for each in (sampler, sampler.sampler)
        )
        return sampler if known and len(sampler) >= 0 else None
    except Exception:  # no batches, or nobody can tell how many
        return None


def size_of(data: object) -> int:
    """Samples in a batch: the first dimension of the first tensor in it."""
    try:
        kind = type(data)
        if kind is list or kind is tuple:
            data = data[0] if data else None
        elif isinstance(data, dict):
            data = next(iter(data.values()), None)
        torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
        # another's `shape` may be code of the script's
        if isinstance(data, (torch.Tensor, getattr(numpy, "ndarray", torch.Tensor))):
            with torch._C.DisableTorchFunction():
                return data.shape[0] if data.ndim else 1
        return len(data) if isinstance(data, (list, tuple)) else 1
    except Exception:  # a kind of batch that nobody knows
        return 0
