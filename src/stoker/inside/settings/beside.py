"""To read the script's data beside its training: its random generators are put aside and put back."""

from __future__ import annotations

import sys
from contextlib import contextmanager

QUIET = 3  # batches that drew nothing, after which the generators are not watched any more


def states(data: object = None) -> tuple:
    """Of torch's, Python's and numpy's global generators, and of those that a data set has for itself."""
    torch, random, numpy = sys.modules.get("torch"), sys.modules.get("random"), sys.modules.get("numpy")
    own = [(each, state_of(each)) for each in generators(data)] if data is not None else []
    return (
        torch.get_rng_state() if torch is not None else None,
        random.getstate() if random is not None else None,
        numpy.random.get_state() if numpy is not None and "numpy.random" in sys.modules else None,
        own,
    )


def put(was: tuple) -> None:
    """Back to what `states` gave."""
    if was[0] is not None:
        sys.modules["torch"].set_rng_state(was[0])
    if was[1] is not None:
        sys.modules["random"].setstate(was[1])
    if was[2] is not None:
        sys.modules["numpy"].random.set_state(was[2])
    for each, state in was[3]:
        _put_back(each, state)


def drew(before: tuple, after: tuple) -> str:
    """Whose generator has moved, or ""."""
    if before[0] is not None and not bool((before[0] == after[0]).all()):
        return "torch"
    if before[1] != after[1]:
        return "Python's random"
    if before[2] is not None and after[2] is not None and not (
            before[2][2:] == after[2][2:] and bool((before[2][1] == after[2][1]).all())):
        return "NumPy"
    moved = any(a is b and str(one) != str(other) for (a, one), (b, other) in zip(before[3], after[3]))  # noqa: B905  # Python 3.9
    return "the data set's own generator" if moved else ""


@contextmanager
def aside(data: object = None):
    """What is drawn within is not drawn for the script."""
    was = states(data)
    try:
        yield
    finally:
        put(was)


# ---- generators that a data set has for itself

def generators(data: object) -> list:
    """The random generators among what it holds."""
    from . import fingerprint
    found: list = []
    fingerprint.walk(data, lambda thing: found.append(thing) if is_generator(thing) else None)
    return found


def is_generator(thing: object) -> bool:
    """Of torch, Python or numpy."""
    torch, random, numpy = sys.modules.get("torch"), sys.modules.get("random"), sys.modules.get("numpy")
    if torch is not None and isinstance(thing, torch.Generator):
        return True
    if random is not None and isinstance(thing, random.Random):
        return True
    return (
        numpy is not None
        and "numpy.random" in sys.modules
        and isinstance(thing, (numpy.random.RandomState, numpy.random.Generator))
    )


def state_of(generator: object) -> object:
    """As something with a str() that tells all of it."""
    for name in ("getstate", "get_state"):
        if hasattr(generator, name):
            state = getattr(generator, name)()
            return (
                _Bytes(state)
                if hasattr(state, "data_ptr")
                else _Tuple(state)
                if name == "get_state"
                else state
            )
    return generator.bit_generator.state


def _put_back(generator: object, state: object) -> None:
    if isinstance(state, (_Bytes, _Tuple)):
        generator.set_state(state.state)
    elif hasattr(generator, "setstate"):
        generator.setstate(state)
    else:
        generator.bit_generator.state = state


class _Bytes:
    def __init__(self, state: object) -> None:
        self.state = state

    def __str__(self) -> str:
        return str(bytes(self.state.tolist()))


class _Tuple(_Bytes):
    def __str__(self) -> str:
        return str([getattr(each, "tolist", lambda each=each: each)() for each in self.state])


# ---- a loader beside the script's

class _Own:
    """Its generators."""

    def __init__(self) -> None:
        self._states: tuple | None = None
        self._quiet = 0

    def __call__(self, work: object, *args: object) -> object:
        if self._quiet >= QUIET:
            return work(*args)
        was = states()
        if self._states is not None:
            put(self._states)
        try:
            return work(*args)
        finally:
            now = states()
            if self._states is not None or drew(was, now):
                self._states = now
                put(was)
            else:
                self._quiet += 1


def guarded(data: object, loader: object) -> object:
    """`data` for a loader without workers, reading with generators of its own."""
    torch_data = sys.modules["torch.utils.data"]
    own = _Own()

    class Stream(torch_data.IterableDataset):
        def __iter__(self):
            source = own(iter, data)
            while True:
                try:
                    sample = own(next, source)
                except StopIteration:
                    return
                yield sample

    class Items(torch_data.Dataset):
        def __len__(self):
            return len(data)

        def __getitem__(self, index):
            return own(data.__getitem__, index)

        def __getitems__(self, indices):
            return own(_items, data, indices)

    return Stream() if isinstance(data, torch_data.IterableDataset) else Items()


def _items(data: object, indices: object) -> object:
    many = getattr(data, "__getitems__", None)
    return many(indices) if many else [data[index] for index in indices]
