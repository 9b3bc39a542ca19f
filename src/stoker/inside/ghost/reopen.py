"""Loaders in an image: what is kept about open iterators and about samplers, and how stand-ins become real iterators again, each at the
batch where it was, with workers whose random generators stand as they stood.
"""

from __future__ import annotations

import os

from . import fate, life, private, samplers, tracks, watch, words, workers

ran_own_code = False  # of the script, on the way of an iterator back to its place
next_batch = None  # torch's own __next__; set by loader.install()
_FIT = ("k", "workers", "persistent", "iterable", "ended")  # the ghost must have come to the same
_BACK = ("epoch", "seed", "made", "reset", "draws", "own_draws", "made_sampler", "reset_sampler", "consumed")
_PROOF = ("drawn", "crc", "sample")  # equal after the way to batch k was gone again
_INSIDE = ("_task_info", "_sampler_iter", "_dataset_fetcher", "_data_queue")


def holds() -> list:
    """What open iterators keep for themselves: batches that wait, and the iterators of samplers and data sets."""
    return [iterator.__dict__[name] for iterator in list(tracks.tracks) for name in _INSIDE if name in iterator.__dict__]


def save(store: object = None) -> dict:
    """The state of all open iterators and of all samplers, marshal-able. Only where `obstacle()` is "". Raises samplers.Unreadable."""
    known, as_first = {}, set()
    for n, entry in tracks.known.items():
        sampler = tracks.sampler_of(entry)
        if sampler is not None:
            state = tracks.capture(entry)
            digest = samplers.digest(state)
            if digest == entry[3]:
                as_first.add(id(sampler))
            known[n] = (digest, None if digest == entry[3] else state)
    return {"counts": tracks.counts, "iterators": [_kept(track, as_first) for track in tracks.still_open()], "samplers": known}


def _kept(track: object, as_first: set) -> dict:
    kept = {name: getattr(track, name) for name in ("number", *_FIT, *_BACK, *_PROOF)}
    with track.as_watched():
        kept["guard"] = track.guard.digest() if track.guard is not None else 0
    kept["counters"] = None if track.counters is None else (track.counters.made, track.counters.watched, track.counters.now())
    if id(track.twin._index_sampler) in as_first and track.made_sampler == (track.reset_sampler or track.made_sampler):
        kept["made_sampler"] = kept["reset_sampler"] = None  # it never changes by itself: a ghost has it
    return kept


def load(state: dict, store: object = None) -> None:
    """Make stand-in iterators real, where they were. The memory of the script (tensors, arrays, values) must be back already, since workers
    start with it; the global random generators are as before when this returns. What does not fit is `diverged`."""
    before, depth = private.rngs(), life.depth
    life.depth = 1
    try:
        why = _load(state, set(filter(None, os.environ.get("STOKER_RESUME_DROP", "").split(","))) & {"position", "worker_rng"})
    except samplers.Unreadable as e:
        why = words.SAMPLER_UNREADABLE.format(what=e)
    finally:
        life.depth = depth
        private.set_rngs(before)
    if why:
        fate.diverged(why)


def _load(state: dict, drop: set) -> str:
    if state["counts"] != tracks.counts:
        return words.LOADER_OTHERS
    there = {track.number: (iterator, track) for iterator, track in list(tracks.tracks.items())}
    for kept in state["iterators"]:
        if kept["number"] not in there:
            return words.LOADER_GONE.format(n=kept["number"])
        why = _rebuild(*there[kept["number"]], kept, drop)
        if why:
            return why
    for n, (digest, kept) in state["samplers"].items():
        entry = tracks.known.get(n)
        if entry is None or tracks.sampler_of(entry) is None:
            continue
        if kept is not None and samplers.digest(tracks.capture(entry)) != digest:
            samplers.restore(kept, tracks.sampler_of(entry), entry[1] and entry[1]())
        if samplers.digest(tracks.capture(entry)) != digest and not drop:
            return words.SAMPLER_OTHER
        tracks.known[n] = (*entry[:3], digest if kept is None else None)  # what changed is kept whole in each later image
    return ""


def _rebuild(iterator: object, track: object, kept: dict, drop: set) -> str:
    """Make one stand-in the iterator it stands for."""
    if any(getattr(track, name) != kept[name] for name in _FIT):
        return words.LOADER_OTHERS
    for name in _BACK:
        setattr(track, name, kept[name])
    track.skip = 0 if "position" in drop else track.k
    begin = {} if "worker_rng" in drop or track.iterable else track.consumed
    track.consumed, track.produced = dict(begin), dict(begin)
    counters, counted = track.counters, None
    if counters is not None:
        counters.made, counters.watched, counted = kept["counters"]
        counters.put(counters.watched)
    if track.workers or track.iterable:
        track.guard = watch.Watch(track.feeds(), files=track.iterable)
        if track.guard.digest() != kept["guard"]:
            return words.LOADER_OTHER_DATA
    if counters is not None:
        counters.put(counters.made)
    if track.made_sampler is not None:
        samplers.restore(track.made_sampler, track.twin._index_sampler, track.twin.generator)
    private.set_rngs(track.made)
    track.again, track.draws = dict(track.draws), []
    track.own_again, track.own_draws, track.own_last = dict(track.own_draws), [], None
    track.drawn = track.crc = track.sample = 0
    try:
        _make(iterator, track, begin)
    except StopIteration:
        return words.LOADER_SHORT
    if counters is not None:
        counters.put(counted)  # the same, but for moments of a clock
        counters.after()
    if drop:
        return ""
    if iterator._base_seed != track.seed:
        return words.LOADER_SEED
    return "" if all(getattr(track, name) == kept[name] for name in _PROOF) else words.LOADER_OTHER_INDICES


def _own_sampler(thing: object) -> bool:
    """Whether drawing indices runs more than torch's own code."""
    while thing is not None:
        if not type(thing).__module__.startswith("torch.utils.data"):
            return True
        thing = getattr(thing, "sampler", None)
    return False


def _make(iterator: object, track: object, begin: dict) -> None:
    """Start the iterator, its workers included, and go to its batch: indices are passed over, an iterable data set is read again."""
    global ran_own_code
    ran_own_code = ran_own_code or track.iterable or _own_sampler(track.twin._index_sampler)
    module = private.data_module("dataloader")
    iterator.__dict__ = {}
    iterator.__class__ = module._MultiProcessingDataLoaderIter if track.workers else module._SingleProcessDataLoaderIter
    tracks.making = tracks.rebuilding = track
    life.again = True
    if track.workers:
        workers.replace_loop(begin)
    try:
        iterator.__init__(track.twin)
        if track.iterable:
            for k in range(track.skip):
                private.set_rngs(track.again.get(k, ()))
                before = private.rngs()
                track.sample = tracks.sample(next_batch(iterator), track.sample)
                if not track.workers:
                    track.drew(k, before, private.rngs())
        elif not track.workers:
            for _ in range(track.skip):
                iterator._next_index()
            iterator._num_yielded = track.skip
    finally:
        workers.restore_loop()
        tracks.making = tracks.rebuilding = None
        life.again = False
