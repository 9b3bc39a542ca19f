"""To read the script's data beside its training: its random generators are put aside and put back."""

from __future__ import annotations

import sys
from contextlib import contextmanager

QUIET = 3  # batches that drew nothing, after which the generators are not watched any more


def states() -> tuple:
    """Of torch's, Python's and numpy's global generators."""
    torch, random, numpy = sys.modules.get("torch"), sys.modules.get("random"), sys.modules.get("numpy")
    return (torch.get_rng_state() if torch is not None else None, random.getstate() if random is not None else None,
            numpy.random.get_state() if numpy is not None and "numpy.random" in sys.modules else None)


def put(was: tuple) -> None:
    if was[0] is not None:
        sys.modules["torch"].set_rng_state(was[0])
    if was[1] is not None:
        sys.modules["random"].setstate(was[1])
    if was[2] is not None:
        sys.modules["numpy"].random.set_state(was[2])


def drew(before: tuple, after: tuple) -> str:
    """Whose generator has moved, or ""."""
    if before[0] is not None and not bool((before[0] == after[0]).all()):
        return "torch"
    if before[1] != after[1]:
        return "random"
    if before[2] is None or after[2] is None:
        return ""
    same = before[2][2:] == after[2][2:] and (before[2][1] == after[2][1]).all()
    return "" if same else "numpy"


@contextmanager
def aside():
    """What is drawn within is not drawn for the script."""
    was = states()
    try:
        yield
    finally:
        put(was)


class _Own:
    """The generators of a loader beside the script's."""

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
            if drew(self._states or was, now):
                self._states, self._quiet = now, 0
                put(was)
            else:
                self._quiet = self._quiet + 1 if self._states is None else 0
                if self._states is not None:
                    put(was)


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
