"""Settings of loaders: what DataLoader.__init__ made is changed before its first batch, where that changes
neither the samples nor their order; and `sibling`, a loader over the same data with other knobs.

A loader that somebody else's code makes, or that has an __iter__ of its own, is left alone.
"""

from __future__ import annotations

import copy
import sys
import time
import weakref

from . import beside, feeds, sites, told
from .proof import Unfit
from .sites import id_of

__all__ = ["Unfit", "facts", "id_of", "install", "obstacle", "sibling", "signature"]
KNOBS = ("workers", "prefetch", "persistent", "pin", "feed")
RECORDED_MAX, RECORDED_S = 4096, 2.0  # of a script's own sampler, for a sibling
TORCHS = "torch.utils.data"
_settings: dict = {}
_made_there: set = set()
_cache_bytes: int | None = None
# id of a loader whose workers live on because of us -> [weakref, fingerprint of its data set]
_persistent: dict = {}
_making = False
_installed = False


def install(settings: dict, cache_bytes: int | None = None) -> None:
    """Watch loaders that are made, and give them their settings (may be empty)."""
    global _installed, _cache_bytes
    _cache_bytes = cache_bytes
    _settings.clear()
    _settings.update(settings)
    if _installed:
        return
    _installed = True
    from torch.utils.data import dataloader

    from ..clock.wrapping import wrap
    wrap(dataloader.DataLoader, "__init__", _init)
    wrap(dataloader.DataLoader, "__iter__", _iter)
    wrap(dataloader._MultiProcessingDataLoaderIter, "_reset", _reset)
    feeds.install(dataloader)


def _init(real: object) -> object:
    def __init__(self, *args, **kwargs):
        real(self, *args, **kwargs)
        if _making:
            return
        try:
            _made(self)
        except Exception as e:
            told.failed("loaders", e)
    return __init__


def _made(loader: object) -> None:
    site = sites.here(loader, signature(loader))
    _made_there.add(site.id)
    wanted = _wanted(site)
    if not wanted:
        return
    why = obstacle(loader, site, wanted.get("signature"))
    for knob in KNOBS:
        if knob not in wanted:
            continue
        name = f"{site.id} {_NAMES[knob]}={wanted[knob]}"
        reason = why or _APPLY[knob](loader, wanted[knob])
        if reason or knob != "feed":  # a feed is decided at the first batch, and told then
            told.left(name, reason) if reason else told.applied(name)


def missed() -> None:
    """Tell of which loaders nothing was seen."""
    for name in _settings:
        if name not in _made_there:
            told.left(name, "the script creates no loader at this line")


def _wanted(site: sites.Site) -> dict:
    """What is wanted of the loader made there.
    To keep the workers of one that is made anew would keep those of all its forerunners."""
    found = _settings.get(site.id) or {}
    return dict(found, persistent=False) if found and site.rebuilt else found


# ---- what a loader is

def signature(loader: object) -> str:
    """What it is, in a line that is the same at each start: data, length, sampler, batch, collate."""
    data = loader.dataset
    batch, sampler = loader.batch_sampler, loader.sampler
    kinds = type(sampler).__name__ if batch is None or _is_torchs(batch) else type(batch).__name__
    collate = getattr(loader.collate_fn, "__qualname__", type(loader.collate_fn).__qualname__)
    last = " drop_last" if loader.drop_last else ""
    return f"{type(data).__qualname__}[{_length(data)}] {kinds} batch={loader.batch_size}{last} {collate}"


def _length(data: object) -> object:
    try:
        return "" if _is_iterable(data) else len(data)
    except Exception:
        return ""


def facts(loader: object) -> dict:
    """What the tuner tells of it."""
    site = sites.site_of(loader)
    own = bool(own_methods(loader))
    if site is None:
        return {
            "id": "",
            "signature": signature(loader),
            "own_iter": own,
            "framework": True,
            "rebuilt": False,
        }
    return {
        "id": site.id,
        "signature": site.signature,
        "own_iter": own,
        "framework": site.framework,
        "rebuilt": site.rebuilt,
    }


def own_methods(loader: object) -> str:
    """The method by which a subclass makes its batches itself, or ""."""
    base = _dataloader()
    for name in ("__iter__", "_get_iterator", "_index_sampler", "_auto_collation"):
        for kind in type(loader).__mro__:
            if name in kind.__dict__:
                if kind is not base:
                    return name
                break
    return ""


def obstacle(loader: object, site: sites.Site | None = None, measured: str | None = None) -> str:
    """Why nothing of this loader is changed, or ""."""
    site = site or sites.site_of(loader)
    if site is None or site.framework:
        return "code of another package creates and configures the loader"
    own = own_methods(loader)
    if own:
        return f"{type(loader).__name__} overrides {own}"
    if any(kind.__name__ in ("IterDataPipe", "MapDataPipe") for kind in type(loader.dataset).__mro__):
        return "the loader reads data pipes"
    if measured and measured != site.signature:
        return f"the loader differs from the measured loader (measured: {measured}; now: {site.signature})"
    return ""


def _dataloader() -> type:
    return sys.modules["torch.utils.data.dataloader"].DataLoader


def _is_iterable(data: object) -> bool:
    return isinstance(data, sys.modules["torch.utils.data"].IterableDataset)


def _is_torchs(sampler: object) -> bool:
    return type(sampler).__module__.startswith(TORCHS)


def _put(loader: object, **values: object) -> None:
    loader.__dict__.update(values)  # some of them are guarded against assignment


# ---- the settings, one by one: "" or why not

def _workers(loader: object, count: int) -> str:
    before = loader.num_workers
    if count == before:
        return ""
    why = worker_obstacle(loader, count)
    if why:
        return why
    _put(loader, num_workers=count)
    if not count:
        _put(loader, prefetch_factor=None, persistent_workers=False, timeout=0)
    elif loader.prefetch_factor is None:
        _put(loader, prefetch_factor=2)
    return ""


def worker_obstacle(loader: object, count: int) -> str:
    """Why this loader cannot have so many workers without another order of samples,
    or without harm; or ""."""
    data = loader.dataset
    if _is_iterable(data):
        return "the data set is a stream: with workers, samples could repeat or come in another order"
    sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    own = next(
        (each for each in (sampler, getattr(sampler, "sampler", sampler)) if not _is_torchs(each)), None
    )
    if own is not None and (not count or not loader.num_workers):
        return (
            f"the loader's {type(own).__name__} is the script's own code and may depend on the training; "
            "workers would run this code too early"
        )
    if not count or loader.num_workers:
        return ""
    import multiprocessing
    if multiprocessing.current_process().daemon:
        return "this process cannot start workers"
    if not feeds.forks(loader):
        return "workers would not start by fork: they would run the script again"
    on = next((str(each.device) for each in _tensors(data) if each.device.type != "cpu"), "")
    return f"the data set is on {on}, but workers can read only CPU memory" if on else ""


def _tensors(data: object) -> list:
    kind = sys.modules["torch"].Tensor
    inside = list(getattr(data, "__dict__", {}).values())
    return [
        x
        for each in inside
        for x in (each if type(each) in (tuple, list) and len(each) < 64 else (each,))
        if isinstance(x, kind)
    ]


def _prefetch(loader: object, count: int) -> str:
    if not loader.num_workers:
        return "the loader has no workers that could prefetch batches"
    if not isinstance(count, int) or count < 1:
        return f"{count} is not a number of batches"
    _put(loader, prefetch_factor=count)
    return ""


def _keep_workers(loader: object, wanted: bool) -> str:
    if not wanted:
        _put(loader, persistent_workers=False)
        return ""
    if loader.persistent_workers:
        return ""
    if not loader.num_workers:
        return "the loader has no workers that could be persistent"
    if _is_iterable(loader.dataset):
        return "with persistent workers, the next epoch of a stream may start where the previous epoch ended"
    if not _seeds_are_known():
        return "Stoker does not know how this version of torch seeds persistent workers"
    key = id(loader)
    _persistent[key] = [weakref.ref(loader, lambda _, forget=_persistent.pop: forget(key, None)), None]
    _put(loader, persistent_workers=True)
    return ""


def _seeds_are_known() -> bool:
    """Whether torch draws one seed for new workers and none for those that it keeps,
    which `_reset` makes up for."""
    module = sys.modules["torch.utils.data.dataloader"]
    one, many = module._BaseDataLoaderIter, module._MultiProcessingDataLoaderIter
    made, kept, again = (
        "random_" in _names_in(function) for function in (one.__init__, one._reset, many._reset)
    )
    return made and not kept and not again


def _names_in(function: object) -> tuple:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function.__code__.co_names


def _pin(loader: object, wanted: bool) -> str:
    torch = sys.modules["torch"]
    if wanted and not torch.cuda.is_available():
        return "there is no GPU to copy to"
    loader.pin_memory = bool(wanted)
    return ""


def _feed(loader: object, kind: str) -> str:
    name = f"{sites.id_of(loader)} feed={kind}"
    return feeds.want(
        loader, kind, _cache_bytes, lambda why: told.left(name, why) if why else told.applied(name)
    )


_APPLY = {"workers": _workers, "prefetch": _prefetch, "persistent": _keep_workers, "pin": _pin, "feed": _feed}
_NAMES = {
    "workers": "workers",
    "prefetch": "prefetch",
    "persistent": "persistent_workers",
    "pin": "pin_memory",
    "feed": "feed",
}


# ---- workers that live on because of us

def _iter(real: object) -> object:
    def __iter__(self):
        if _persistent:
            try:
                _still_fresh(self)
            except Exception as e:
                told.failed(f"{id_of(self)} persistent_workers", e)
        return real(self)
    return __iter__


def _still_fresh(loader: object) -> None:
    """A data set that the script has changed since the last pass is
    not the one the workers have: new workers."""
    kept = _persistent.get(id(loader))
    if kept is None or not loader.persistent_workers:
        return
    from . import fingerprint
    now = fingerprint.of(loader.dataset)
    if kept[1] is not None and now != kept[1] and loader._iterator is not None:
        del _persistent[id(loader)]
        iterator = loader._iterator
        _put(loader, persistent_workers=False, _iterator=None)
        iterator._shutdown_workers()
        told.left(
            f"{id_of(loader)} persistent_workers",
            f"the data set changes between epochs ({fingerprint.difference(kept[1], now)})",
        )
        return
    kept[1] = now


def _reset(real: object) -> object:
    """A pass with new workers draws a seed for them. With kept ones torch does not;
    the order of the samples must be the same."""
    def _reset(self, loader, first_iter=False):
        if not first_iter and id(loader) in _persistent:
            torch = sys.modules["torch"]
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        return real(self, loader, first_iter)
    return _reset


# ---- a loader beside

def sibling(loader: object, **changes: object) -> object:
    """A new loader over the same data set, with the same kind of sampler, and `changes` of workers, prefetch,
    persistent, pin, feed and cache_bytes. It draws nothing from the script's random streams:
    its own generator, its own order. Raises Unfit."""
    global _making
    why = own_methods(loader)
    if why:
        raise Unfit(f"{type(loader).__name__} overrides the method {why}")
    workers = changes.get("workers", loader.num_workers)
    if workers != loader.num_workers:
        why = worker_obstacle(loader, workers)
        if why and workers:
            raise Unfit(why)
    torch = sys.modules["torch"]
    generator = torch.Generator()
    generator.manual_seed(time.monotonic_ns() & 0x7FFFFFFF)
    words = {
        "num_workers": workers,
        "collate_fn": loader.collate_fn,
        "generator": generator,
        "worker_init_fn": loader.worker_init_fn,
        "pin_memory": bool(changes.get("pin", loader.pin_memory)) and torch.cuda.is_available(),
    }
    if workers:
        words.update(
            prefetch_factor=changes.get("prefetch") or loader.prefetch_factor or 2,
            timeout=loader.timeout,
            persistent_workers=bool(changes.get("persistent", loader.persistent_workers)),
            multiprocessing_context=loader.multiprocessing_context,
        )
    data = loader.dataset
    if not workers and not changes.get("feed"):
        data = beside.guarded(data, loader)
    words.update(_sampling(loader, generator))
    before, _making = _making, True
    try:
        made = _dataloader()(data, **words)
    except (ValueError, TypeError, AssertionError) as e:
        raise Unfit(f"{type(e).__name__}: {e}") from e
    finally:
        _making = before
    if changes.get("feed"):
        why = feeds.give(made, changes["feed"], changes.get("cache_bytes"))
        if why:
            raise Unfit(why)
    return made


def _sampling(loader: object, generator: object) -> dict:
    if _is_iterable(loader.dataset):
        return {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    batch = loader.batch_sampler
    if batch is None:
        return {"batch_size": None, "sampler": _like(loader.sampler, loader.dataset, generator)}
    if _is_torchs(batch) and type(batch).__name__ == "BatchSampler":
        return {
            "batch_size": batch.batch_size,
            "drop_last": batch.drop_last,
            "sampler": _like(batch.sampler, loader.dataset, generator),
        }
    return {"batch_sampler": _recorded(batch, loader.dataset)}


def _like(sampler: object, data: object, generator: object) -> object:
    """A sampler of the same kind that draws from `generator`."""
    from torch.utils.data import sampler as kinds
    kind = type(sampler)
    if kind is kinds.SequentialSampler:
        return kinds.SequentialSampler(sampler.data_source)
    if kind is kinds.RandomSampler:
        return kinds.RandomSampler(sampler.data_source, sampler.replacement, sampler._num_samples, generator)
    if kind in (kinds.SubsetRandomSampler, kinds.WeightedRandomSampler):
        again = copy.copy(sampler)
        again.generator = generator
        return again
    return _recorded(sampler, data)


def _recorded(sampler: object, data: object) -> list:
    """What a sampler of the script's own gives,
    drawn from a copy of it while the script's generators are put aside."""
    until, found = time.monotonic() + RECORDED_S, []
    with beside.aside():
        try:
            again = copy.deepcopy(sampler, {id(data): data})
            for each in again:
                found.append(each)
                if len(found) >= RECORDED_MAX or time.monotonic() > until:
                    break
        except Exception as e:
            raise Unfit(
                f"the sampler cannot be read outside of the training ({type(e).__name__}: {e})"
            ) from e
    if not found:
        raise Unfit("the sampler returns nothing")
    return found
