"""What feeds a loader instead of its data set's `__getitem__`:
batches read at once (batched.py) or samples that are kept (cache.py).

The loader and its data set stay as they are, only the iterators that are made of it read another way.
That is decided at the first of them, by a proof on a few items, looked at again with each, and now and then
with a single sample; what fails is left at once, and that batch is read as the script reads it.

The proof compares 64 items at the first batch, and is made again in each pass. In a race, `pool` N makes a
cache read sample `i % N`, so that it is full at once.
"""

from __future__ import annotations

import os
import sys
import time
import weakref

from . import batched, beside, cache, fingerprint
from .proof import Proof, Unfit, collate, difference

KINDS = ("batched", "cache")
CHEAP, CHEAP_S = 64, 3.0  # items, and seconds, of the proof at the start of a run
# one sample is read again after so long, if that is not more than this share of the time
SPOT_S, SPOT_SHARE = 2.0, 0.005
WARM_S = 1.5  # to fill the cache of a loader beside the script's
_wishes: dict = {}  # id of a loader -> Wish
_single: object = None
_feeds: dict = {}  # number of a Fed -> its Feed
_count = [0]
_given: dict = {}  # what was given to loaders of our own
pool = 0  # in a race of the tuner: so many different samples stand for all, so that a cache is warm soon


def install(dataloader: object) -> None:
    """Stand where iterators over loaders are made."""
    global _single
    from ..clock.wrapping import wrap
    _single = dataloader._SingleProcessDataLoaderIter
    wrap(dataloader._BaseDataLoaderIter, "__init__", _begins)


class Wish:
    """How a loader is to be fed; `feed` is None until that is decided, and where it is refused."""

    def __init__(self, loader: object, kind: str, limit: int | None, tell: object) -> None:
        key = id(loader)
        self.loader = weakref.ref(loader, lambda _, forget=_wishes.pop: forget(key, None))
        self.kind, self.limit, self.tell = kind, limit, tell
        self.decided, self.feed = False, None
        _wishes[key] = self


def want(loader: object, kind: str, limit: int | None, tell: object) -> str:
    """Feed it so from its first batch on. "" or why not;
    `tell(why)` is called when it is decided, and again if it must be left."""
    why = _obstacle(loader, kind)
    if not why:
        Wish(loader, kind, limit, tell)
    return why


def give(loader: object, kind: str, limit: int | None = None) -> str:
    """Feed a loader of our own so, now; a cache is warm. "" or why not."""
    why = _obstacle(loader, kind)
    if why:
        return why
    wish = Wish(loader, kind, limit, lambda why: None)
    key = id(loader.dataset), kind, bool(loader.num_workers), id(loader.collate_fn)
    if key in _given:  # proven, and warm
        wish.decided, wish.feed = True, _given[key]
        return ""
    why = _decide(wish, loader)
    if not why:
        if kind == "cache":
            wish.feed.warm(WARM_S, loader.batch_size or 1)
        _given[key] = wish.feed
    return why


def proofs(loader: object, n: int = 1000, seconds: float = 4.0) -> dict:
    """{feed: True, or why not} for each way to feed it;
    each item is asked for at most three times, and the seconds are of each."""
    found = {}
    for kind, prove in (("batched", batched.prove), ("cache", cache.prove)):
        why = _obstacle(loader, kind) or prove(loader.dataset, n, seconds).why
        found[kind] = why or True
    return found


def _obstacle(loader: object, kind: str) -> str:
    if kind not in KINDS:
        return f"{kind} is not a known setting for a loader"
    if loader._dataset_kind != 0:  # _DatasetKind.Map
        return "the data set is a stream: its samples have no index"
    if loader.batch_sampler is None:
        return "the loader returns single samples, not batches"
    if kind == "batched" and not _is_default(loader):
        return "the script has its own collate_fn, so Stoker cannot build whole batches"
    if loader.num_workers and not forks(loader):
        return "the workers do not start by fork, so Stoker cannot change how they read samples"
    return ""


def forks(loader: object) -> bool:
    """Whether its workers are, or would be. Asking multiprocessing itself would decide it for the script."""
    import multiprocessing
    own = loader.multiprocessing_context
    if own is not None:
        return own.get_start_method() == "fork"
    return (
        multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    ) == "fork"


def _is_default(loader: object) -> bool:
    return loader.collate_fn is sys.modules["torch.utils.data._utils.collate"].default_collate


def _decide(wish: Wish, loader: object) -> str:
    wish.decided = True
    data = loader.dataset
    try:
        with beside.aside(data):
            if wish.kind == "batched":
                reader = batched.plan(data)
                proof = batched.prove(data, CHEAP, CHEAP_S, reader)
            else:
                reader = cache.again(data, loader.num_workers, _is_default(loader))
                proof = Proof("", 0, 0.0) if reader is not None else cache.prove(data, CHEAP, CHEAP_S)
                if proof and reader is None:
                    reader = cache.of(data, loader.num_workers, wish.limit, _is_default(loader))
    except Unfit as e:
        proof = Proof(str(e), 0, 0.0)
    except Exception as e:
        proof = Proof(f"{type(e).__name__}: {e}"[:200], 0, 0.0)
    if not proof:
        return proof.why
    wish.feed = Feed(wish, data, reader, loader.collate_fn)
    return ""


def _begins(real: object) -> object:
    def __init__(self, loader):
        real(self, loader)
        wish = _wishes.get(id(loader)) if _wishes else None
        if wish is not None:
            try:
                _feed(self, loader, wish)
            except Exception as e:
                _wishes.pop(id(loader), None)
                wish.tell(f"{type(e).__name__}: {e}")
    return __init__


def _feed(iterator: object, loader: object, wish: Wish) -> None:
    if not wish.decided:
        wish.tell(_decide(wish, loader))
    elif wish.feed is not None:
        wish.feed.begin()
    if wish.feed is None or wish.feed.off:
        return
    fed = Fed(wish.feed)
    iterator._dataset, iterator._collate_fn = fed, fed.collate
    if type(iterator) is _single and os.environ.get("STOKER_RESUME") != "auto":
        iterator._sampler_iter = _indices(loader.batch_sampler) or iterator._sampler_iter


class Ready:
    """A whole batch, on its way to a collate that has nothing to do."""

    __slots__ = ("batch",)

    def __init__(self, batch: object) -> None:
        self.batch = batch


class Fed:
    """Stands in an iterator in the place of the data set. It holds only a number:
    an image of exact resume needs no copy of a cache, the life that goes to it makes its own."""

    __slots__ = ("__weakref__", "n")

    def __init__(self, feed: Feed) -> None:
        _count[0] += 1
        self.n = n = _count[0]
        _feeds[n] = feed, weakref.ref(self, lambda _, forget=_feeds.pop: forget(n, None))

    def __len__(self) -> int:
        return len(_feeds[self.n][0].data)

    def __getitem__(self, index: object) -> object:
        return _feeds[self.n][0].data[index]

    def __getitems__(self, indices: object) -> object:
        return _feeds[self.n][0].read(indices)

    def collate(self, batch: object) -> object:
        """What is a batch already passes through."""
        return batch.batch if type(batch) is Ready else _feeds[self.n][0].collate(batch)

    def __reduce__(self) -> tuple:
        return _original, (_feeds[self.n][0].data,)  # a worker that is not forked reads as the script does


class Feed:
    """How one data set is read."""

    def __init__(self, wish: Wish, data: object, reader: object, real_collate: object) -> None:
        self.data, self.reader, self.off = data, reader, False
        self._tell, self.collate = wish.tell, real_collate
        self._rows = getattr(reader, "rows", None) if wish.kind == "batched" else None
        self._whole = self._rows is not None or reader.batch
        self._held, self._stamp = fingerprint.of(data), fingerprint.stamp(data)
        self._pool = min(pool, len(data)) if wish.kind == "cache" else 0
        self._spot_at = time.monotonic() + SPOT_S

    def read(self, indices: object) -> object:
        """A batch that is ready, or samples for the loader's own collate."""
        if not self.off:
            try:
                return self._read(indices)
            except Exception as e:
                self._leave(str(e) if isinstance(e, (Unfit, cache.Changed)) else f"{type(e).__name__}: {e}")
        return self._plain(indices)

    def begin(self) -> None:
        """A pass begins: is the data set still what it was?"""
        now = fingerprint.of(self.data)
        if now == self._held:
            return
        what = fingerprint.difference(self._held, now)
        self._held, self._stamp = now, fingerprint.stamp(self.data)
        if self._rows is None:
            self._leave(f"the data set changes between epochs ({what})")
            return
        with beside.aside(self.data):
            try:
                self.reader = batched.plan(self.data)
                why = batched.prove(self.data, CHEAP, CHEAP_S, self.reader).why
            except Unfit as e:
                why = str(e)
            if not why:
                self._rows, self.off = self.reader.rows, False
            else:
                self._leave(f"the data set changes between epochs ({what}): {why}")

    def warm(self, seconds: float, batch: int) -> None:
        """Keep some samples now, and read only those:
        a loader that is measured is to be as it will be later on."""
        until, size = time.monotonic() + seconds, min(len(self.data), max(256, 8 * batch))
        filled = 0
        with beside.aside(self.data):
            while filled < size and (filled < batch or time.monotonic() < until):
                self.reader.__getitems__([filled]) if self._whole else self.reader[filled]
                filled += 1
        self._pool = filled

    def _read(self, indices: object) -> object:
        if fingerprint.stamp(self.data) != self._stamp:
            raise Unfit("the data set changes during an epoch")
        if self._pool:
            indices = [int(i) % self._pool for i in indices]
        if self._rows is not None:
            torch = sys.modules["torch"]
            at = indices if isinstance(indices, torch.Tensor) else torch.tensor(indices, dtype=torch.int64)
            batch = self._rows(at)
        elif hasattr(self.reader, "__getitems__"):
            batch = self.reader.__getitems__(indices)
        else:
            batch = [self.reader[int(index)] for index in indices]
        if time.monotonic() > self._spot_at:
            self._look(int(indices[0]))
        return Ready(batch) if self._whole else batch

    def _look(self, index: int) -> None:
        """Read one sample as the script does, and compare. Raises Unfit."""
        began = time.monotonic()
        with beside.aside(self.data):
            sample = self.data[index]
            took = time.monotonic() - began
            if self._rows is not None:
                found = difference(collate([sample]), self._rows(sys.modules["torch"].tensor([index])))
            elif self._whole:
                found = difference(collate([sample]), self.reader.__getitems__([index]))
            else:
                found = difference(sample, self.reader[index])
        if found:
            raise Unfit(f"sample {index} has changed: {found}")
        self._spot_at = time.monotonic() + max(SPOT_S, took / SPOT_SHARE)

    def _leave(self, why: str) -> None:
        self.off = True
        cache.forget(self.reader)
        try:
            self._tell(why)
        except Exception:
            pass

    def _plain(self, indices: object) -> object:
        indices = indices.tolist() if hasattr(indices, "tolist") else indices
        many = getattr(self.data, "__getitems__", None)
        return many(indices) if many else [self.data[index] for index in indices]


def _original(data: object) -> object:
    return data


# ---- indices

def _indices(batches: object) -> object:
    """The batches of torch's own samplers as tensors of indices, without a Python number for each;
    None for other samplers. What is drawn from which generator, and when, is as in torch."""
    from torch.utils.data import sampler as kinds
    if type(batches) is not kinds.BatchSampler:
        return None
    inner = batches.sampler
    if not _order_is_known():
        return None
    if type(inner) is kinds.SequentialSampler:
        return _cut(
            lambda: iter([sys.modules["torch"].arange(len(inner.data_source))]),
            batches.batch_size,
            batches.drop_last,
        )
    if (
        type(inner) is kinds.RandomSampler
        and not inner.replacement
        and inner.num_samples == len(inner.data_source)
    ):
        return _cut(lambda: _shuffled(inner), batches.batch_size, batches.drop_last)
    return None


def _shuffled(sampler: object) -> object:
    torch, length = sys.modules["torch"], len(sampler.data_source)
    generator = sampler.generator
    if generator is None:
        generator = torch.Generator()
        generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
    yield torch.randperm(length, generator=generator)
    torch.randperm(length, generator=generator)  # torch draws one more, of which it takes none


def _order_is_known() -> bool:
    """Whether this torch shuffles as `_shuffled` does:
    the same order, and all generators left as torch leaves them. Looked at once."""
    if not _known_order:
        from torch.utils.data import RandomSampler
        torch = sys.modules["torch"]
        was, told = torch.get_rng_state(), []
        try:
            for own in (None, torch.Generator()):
                for ours in (False, True):
                    torch.set_rng_state(was)
                    if own is not None:
                        own.manual_seed(7)
                    sampler = RandomSampler(range(9), generator=own)
                    order = [n for part in _shuffled(sampler) for n in part.tolist()] if ours else [*sampler]
                    told.append((order, torch.get_rng_state().tolist(), own and own.get_state().tolist()))
        finally:
            torch.set_rng_state(was)
        _known_order.append(told[0] == told[1] and told[2] == told[3])
    return _known_order[0]


_known_order: list = []


def _cut(source: object, size: int, drop_last: bool) -> object:
    for order in source():
        whole = len(order) // size * size
        for start in range(0, whole, size):
            yield order[start:start + size]
        rest = order[whole:]
    if len(rest) and not drop_last:
        yield rest
