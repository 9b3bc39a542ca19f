"""DataLoader under exact resume: each iterator and each batch is an event;
a ghost gets stand-in iterators that start no worker and touch no data set.

`install()` patches DataLoader. `obstacle()`, `save()` and `load(state)` (reopen.py) are what an image needs:
at its place each open stand-in becomes a real iterator, at the batch where it was.
"""

from __future__ import annotations

import _thread
import sys

from ...looks import isinstance
from ..compute import call_writes, side_effects, stand_ins
from ..core import internals, outcome, phases, words
from ..state import watch_kinds
from ..world import journal, opening
from . import loader_state, reopen, samplers, workers
from .reopen import holds, load, save

__all__ = ["holds", "install", "load", "obstacle", "save"]
_module = None  # torch.utils.data.dataloader
_originals: dict = {}
_stand_in: type | None = None
_kinds: dict = {}  # the numbers of our events in the log of this life
_by_thread = False


def install() -> None:
    """Called once, when torch has been imported and `internals.self_test()` is content."""
    global _module, _stand_in
    if _module is not None:
        return
    _module = internals.data_module("dataloader")
    many = "_MultiProcessingDataLoaderIter"
    for owner, name, patched in (
        ("DataLoader", "__iter__", _iter), ("_BaseDataLoaderIter", "__next__", _next),
        ("_BaseDataLoaderIter", "_next_index", _next_index),
        (many, "_reset", _reset), (many, "_get_data", _get_data), (many, "_process_data", _process_data),
    ):  # fmt: skip
        kind = getattr(_module, owner)
        original = _originals[name] = getattr(kind, name)
        for word in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(patched, word, getattr(original, word))
        patched.__wrapped__ = original
        setattr(kind, name, patched)
    reopen.next_batch = _originals["__next__"]
    watch_kinds.remember_generators()
    _stand_in = type(
        "StandIn", (_module._BaseDataLoaderIter,), {"__init__": lambda self: None, "__module__": __name__}
    )


def obstacle() -> str:
    """Why no image can be taken now, or ""."""
    if _by_thread:
        return words.LOADER_THREAD
    for track in loader_state.still_open():
        why = track.trouble or track.changed()
        if why:
            return why
    return ""


# ---- what the script calls

def _iter(self):
    if not phases.here():
        _outside()
        return _originals["__iter__"](self)
    phases.enter(sys._getframe(1))
    try:
        return _ghost_iter(self) if phases.phase == phases.GHOST else _real_iter(self)
    finally:
        opening.read_again = False
        phases.leave()


def _next(self):
    if not phases.here():
        _outside()
        return _originals["__next__"](self)
    phases.enter(sys._getframe(1))
    try:
        return _ghost_next(self) if phases.phase == phases.GHOST else _real_next(self)
    finally:
        opening.read_again = False
        phases.leave()


def _outside() -> None:
    """A loader is used where no event is made: within a shield that is its business;
    in another thread nobody can follow it."""
    global _by_thread
    if phases.phase and _thread.get_ident() != phases.main:
        _by_thread = True


def _kind(name: str) -> int:
    if _kinds.get("log") is not phases.log:
        _kinds.clear()
        _kinds.update({word: phases.log.kind(word) for word in ("iter", "next", "stop")}, log=phases.log)
    return _kinds[name]


# ---- for real

def _real_iter(loader: object) -> object:
    track = _fenced(_before_iter, loader)
    looked = (track is not None and _fenced(_look, track)) or ()
    if track is not None and track.workers:
        workers.replace_loop({})
    loader_state.making = track
    opening.read_again = track is not None and track.iterable
    try:
        iterator = _originals["__iter__"](loader)
    except BaseException as e:
        _failed(e)
        raise
    finally:
        loader_state.making = None
        workers.restore_loop()
    if track is not None and phases.phase:
        _fenced(_after_iter, loader, iterator, track, looked)
    return iterator


def _before_iter(loader: object) -> object:
    again = loader._iterator if loader_state.keeps_workers(loader) else None
    track = loader_state.tracks.get(again) if again is not None else None
    why = _not_understood(loader) or (words.LOADER_UNKNOWN if again is not None and track is None else "")
    if why:
        outcome.refuse(why)
        return None
    state, trouble = loader_state.sampler_state(loader)
    if track is None:
        track = loader_state.Track(loader)
        track.made, track.made_sampler = internals.rngs(), state
    else:
        track.begin(loader)
        track.epoch += 1
        track.reset, track.reset_sampler = internals.rngs(), state
        trouble = trouble or _on_from_before(track)
    track.trouble = track.trouble or trouble
    loader_state.remember(loader, state)
    track.inside = loader_state.inside(loader)
    track.inside.before()
    return track


def _on_from_before(track: object) -> str:
    """Why the next epoch of workers that live on cannot be made again, or ""."""
    if track.iterable:
        return words.LOADER_ITERABLE_PERSISTENT
    if track.guard is not None:
        track.guard.forgive_shared()
    return track.changed()


def _after_iter(loader: object, iterator: object, track: object, looked: list) -> None:
    if type(iterator) not in (_module._SingleProcessDataLoaderIter, _module._MultiProcessingDataLoaderIter):
        outcome.refuse(words.LOADER_OWN_ITERATOR.format(type=type(iterator).__name__))
        return
    track.seed = iterator._base_seed
    # what was on its way when a persistent iterator began again is thrown away
    track.consumed = dict(track.produced)
    if track.guard is None and (track.workers or track.iterable):
        track.guard = loader_state.guard(loader, track)
        if not track.workers:
            track.trouble = track.trouble or track.guard.unreadable
            track.counters.begin_watch()
    loader_state.tracks[iterator] = track
    track.inside.after()
    phases.log.put(_kind("iter"))
    _tell(looked)


def _not_understood(loader: object) -> str:
    kind = type(loader)
    for name in ("_get_iterator", "_index_sampler", "_auto_collation"):
        if getattr(kind, name) is not getattr(_module.DataLoader, name):
            return words.LOADER_OWN.format(type=kind.__name__, name=name)
    if loader.num_workers > 1 and not getattr(loader, "in_order", True):
        return words.LOADER_ORDER
    pipes = any(base.__name__ in ("IterDataPipe", "MapDataPipe") for base in type(loader.dataset).__mro__)
    return words.LOADER_PIPES if pipes else ""


def _real_next(iterator: object) -> object:
    track = loader_state.tracks.get(iterator)
    if track is None:
        outcome.refuse(words.LOADER_UNKNOWN)
        return _originals["__next__"](iterator)
    before = internals.rngs() if track.iterable and not track.workers else None
    _fenced(track.look, "before")
    if track.counters is not None:
        track.counters.before()
    looked = _fenced(_look, track) or ()
    opening.read_again = track.iterable
    try:
        data = _originals["__next__"](iterator) if type(iterator) is not _stand_in else _exhausted(track)
    except StopIteration:
        track.ended = True
        _fenced(_stopped, track)
        raise
    except BaseException as e:
        _failed(e)
        raise
    _fenced(_after_next, track, data, before, looked)
    return data


def _look(track: object) -> list:
    writers = track.writers()
    return call_writes.before(writers) if writers else []


def _after_next(track: object, data: object, before: tuple | None, looked: list) -> None:
    if before is not None:
        track.drew(track.k, before, internals.rngs())
    track.k += 1
    track.look("after")
    if track.counters is not None:
        track.counters.after()
    if track.iterable:
        track.sample = loader_state.sample(data, track.sample)
    phases.log.put(_kind("next"), stand_ins.template(data))
    _tell(looked)


def _tell(looked: list) -> None:
    """What was written since `_look`, as an event behind that of the call."""
    if looked:
        side_effects.put(call_writes.told(looked, ()))


def _stopped(track: object) -> None:
    track.look("after")
    phases.log.put(_kind("stop"))


def _exhausted(track: object) -> None:
    """A stand-in that was at its end when the image was taken stays what it is, and at its end."""
    if not track.ended:
        outcome.diverged(words.LOADER_ENDED)
    raise StopIteration


def _failed(error: BaseException) -> None:
    """An error comes out of a loader. The script may catch it and go on; a ghost could not."""
    if isinstance(error, Exception) or phases.phase == phases.RECORD:
        outcome.refuse(
            words.LOADER_FAILED.format(error=f"{type(error).__name__}: {error}".partition("\n")[0][:200])
        )


def _fenced(call: object, *args: object) -> object:
    """Our own part of what the user called."""
    try:
        return call(*args)
    except Exception as e:
        outcome.broke(e)
        return None


# ---- within torch's iterators

def _next_index(self):
    track = loader_state.track_of(self)
    if track is None or not phases.phase:
        return _originals["_next_index"](self)
    if track is loader_state.rebuilding:
        if track.held:
            raise StopIteration
        before = track.again.get(track.drawn)
        if before is not None and not track.iterable:
            internals.set_rngs(before)
        for generator, state in zip(track.generators, track.own_again.get(track.drawn, ())):  # noqa: B905 - Python 3.9
            internals.set_torch_rng(state, generator)
    before, own = internals.rngs(), track.own_states()
    index = _originals["_next_index"](self)
    # there an index says nothing, and how many are drawn is a matter of when workers end
    if not track.iterable:
        track.crc = loader_state.checksum(index, track.crc)
        track.drew(track.drawn, before, internals.rngs())
        track.drew_of_own(track.drawn, own, track.own_states())
        track.drawn += 1
    return index


def _get_data(self):
    number, data = _originals["_get_data"](self)
    track = loader_state.track_of(self)
    if track is not None:
        _note(track, track.produced, data)
    return number, data


def _process_data(self, data, *more):
    track = loader_state.track_of(self)
    if track is not None:
        _note(track, track.consumed, data)
    return _originals["_process_data"](self, data.data if type(data) is workers.Batch else data, *more)


def _note(track: object, states: dict, data: object) -> None:
    """Remember how a worker's generators stood after this batch, and what it saw change."""
    if type(data) is workers.Batch:
        worker, rngs, changed = data.worker, data.rngs, data.changed
    else:
        worker, rngs, changed = getattr(data, workers.NEWS, (None, None, ""))
    if rngs is not None:
        states[worker] = tuple(
            b if b is not None else a
            for a, b in zip(states.get(worker, (None, None, None)), rngs)  # noqa: B905
        )
    if changed:
        why = words.WORKER_CHANGED.format(what=changed)
        track.trouble = track.trouble or why
        if changed.startswith(workers.WRITES):  # no journal keeps what was there
            journal.give_up(why)
            outcome.refuse(why)


def _reset(self, loader, first_iter=False):
    track = loader_state.rebuilding
    if track is None or loader_state.track_of(self) is not track:
        return _originals["_reset"](self, loader, first_iter)
    if track.epoch:
        if track.reset_sampler is not None:
            samplers.restore(track.reset_sampler, loader._index_sampler, loader.generator)
        internals.set_rngs(track.reset)
    track.held = True  # no index is drawn, so that no task is sent
    _originals["_reset"](self, loader, first_iter)
    track.held = False
    if not track.iterable:
        for _ in range(track.skip):
            self._next_index()
        for _ in range(track.skip % self._num_workers):
            next(self._worker_queue_idx_cycle)
        self._num_yielded = track.skip
    for _ in range(self._prefetch_factor * self._num_workers):
        self._try_put_index()


# ---- as a ghost

def _ghost_iter(loader: object) -> object:
    phases.log.take(_kind("iter"))
    keeps = loader_state.keeps_workers(loader)
    iterator = loader._iterator if keeps else None
    if iterator is None:
        iterator = _stand_in()
        loader_state.tracks[iterator] = loader_state.Track(loader)
        if keeps:
            loader._iterator = iterator
    else:
        loader_state.tracks[iterator].begin(loader)
    iterator.__dict__.update(
        _index_sampler=loader._index_sampler,
        _dataset=loader.dataset,
        _num_workers=loader.num_workers,
        _num_yielded=0,
    )
    loader_state.remember(loader)
    _fenced(side_effects.hand_out_of_data, loader_state.tracks[iterator])
    return iterator


def _ghost_next(iterator: object) -> object:
    track = loader_state.tracks[iterator]
    if phases.log.peek() == _kind("stop"):
        phases.log.take(_kind("stop"))
        track.ended = True
        raise StopIteration
    value = phases.log.take(_kind("next"))
    track.k += 1
    iterator._num_yielded = track.k
    data = stand_ins.build(value)
    _fenced(side_effects.hand_out_of_data, track)
    return data
