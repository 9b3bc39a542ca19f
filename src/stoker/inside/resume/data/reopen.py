"""Loaders in an image: what is kept about open iterators and about samplers, and how stand-ins become real
iterators again, each at the batch where it was, with workers whose random generators stand as they stood.
"""

from __future__ import annotations

import os

from ..core import internals, outcome, phases, words
from ..state import watch
from . import loader_state, samplers, workers

ran_own_code = False  # of the script, on the way of an iterator back to its place
next_batch = None  # torch's own __next__; set by loader.install()
_FIT = ("k", "workers", "persistent", "iterable", "ended")  # the ghost must have come to the same
_BACK = ("epoch", "seed", "made", "reset", "draws", "own_draws", "made_sampler", "reset_sampler", "consumed")
_PROOF = ("drawn", "crc", "sample")  # equal after the way to batch k was gone again
_INSIDE = ("_task_info", "_sampler_iter", "_dataset_fetcher", "_data_queue")


def holds() -> list:
    """What open iterators keep for themselves:
    batches that wait, and the iterators of samplers and data sets."""
    return [
        iterator.__dict__[name]
        for iterator in list(loader_state.tracks)
        for name in _INSIDE
        if name in iterator.__dict__
    ]


def save(store: object = None) -> dict:
    """The state of all open iterators and of all samplers, marshal-able.
    Only where `obstacle()` is "". Raises samplers.Unreadable."""
    known, as_first = {}, set()
    for n, entry in loader_state.known.items():
        sampler = loader_state.sampler_of(entry)
        if sampler is not None:
            state = loader_state.capture(entry)
            digest = samplers.digest(state)
            if digest == entry[3]:
                as_first.add(id(sampler))
            known[n] = (digest, None if digest == entry[3] else state)
    return {
        "counts": loader_state.counts,
        "iterators": [_kept(track, as_first) for track in loader_state.still_open()],
        "samplers": known,
    }


def _kept(track: object, as_first: set) -> dict:
    kept = {name: getattr(track, name) for name in ("number", *_FIT, *_BACK, *_PROOF)}
    with track.as_watched():
        kept["guard"] = track.guard.digest() if track.guard is not None else 0
    kept["counters"] = (
        None
        if track.counters is None
        else (track.counters.made, track.counters.watched, track.counters.now())
    )
    if id(track.twin._index_sampler) in as_first and track.made_sampler == (
        track.reset_sampler or track.made_sampler
    ):
        kept["made_sampler"] = kept["reset_sampler"] = None  # it never changes by itself: a ghost has it
    return kept


def load(state: dict, store: object = None) -> None:
    """Make stand-in iterators real, where they were.
    The memory of the script (tensors, arrays, values) must be back already, since workers start with it;
    the global random generators are as before when this returns. What does not fit is `diverged`."""
    before, depth = internals.rngs(), phases.depth
    phases.depth = 1
    try:
        why = _load(
            state,
            set(filter(None, os.environ.get("STOKER_RESUME_DROP", "").split(",")))
            & {"position", "worker_rng"},
        )
    except samplers.Unreadable as e:
        why = words.SAMPLER_LOST.format(what=e)
    finally:
        phases.depth = depth
        internals.set_rngs(before)
    if why:
        outcome.diverged(why)


def _load(state: dict, drop: set) -> str:
    if state["counts"] != loader_state.counts:
        return words.LOADER_OTHERS
    there = {track.number: (iterator, track) for iterator, track in list(loader_state.tracks.items())}
    for kept in state["iterators"]:
        if kept["number"] not in there:
            return words.LOADER_GONE.format(n=kept["number"])
        why = _rebuild(*there[kept["number"]], kept, drop)
        if why:
            return why
    for n, (digest, kept) in state["samplers"].items():
        entry = loader_state.known.get(n)
        if entry is None or loader_state.sampler_of(entry) is None:
            continue
        if kept is not None and samplers.digest(loader_state.capture(entry)) != digest:
            samplers.restore(kept, loader_state.sampler_of(entry), entry[1] and entry[1]())
        if samplers.digest(loader_state.capture(entry)) != digest and not drop:
            return words.SAMPLER_OTHER
        # what changed is kept whole in each later image
        loader_state.known[n] = (*entry[:3], digest if kept is None else None)
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
    internals.set_rngs(track.made)
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
    """Start the iterator, its workers included, and go to its batch:
    indices are passed over, an iterable data set is read again."""
    global ran_own_code
    ran_own_code = ran_own_code or track.iterable or _own_sampler(track.twin._index_sampler)
    module = internals.data_module("dataloader")
    iterator.__dict__ = {}
    iterator.__class__ = (
        module._MultiProcessingDataLoaderIter if track.workers else module._SingleProcessDataLoaderIter
    )
    loader_state.making = loader_state.rebuilding = track
    phases.again = True
    if track.workers:
        workers.replace_loop(begin)
    try:
        iterator.__init__(track.twin)
        if track.iterable:
            for k in range(track.skip):
                internals.set_rngs(track.again.get(k, ()))
                before = internals.rngs()
                track.sample = loader_state.sample(next_batch(iterator), track.sample)
                if not track.workers:
                    track.drew(k, before, internals.rngs())
        elif not track.workers:
            for _ in range(track.skip):
                iterator._next_index()
            iterator._num_yielded = track.skip
    finally:
        workers.restore_loop()
        loader_state.making = loader_state.rebuilding = None
        phases.again = False
