"""Samples that are kept once they were made,
for data sets in which the same index gives the same sample each time (`prove`).

Samples of one shape are kept in columns of shared memory that exist before a worker is forked:
what one worker has made, all have, in each later epoch, and also when workers are started anew.
Two that write the same row write the same bytes; a row counts when its mark is set, behind it.
Samples of changing shape are kept by the process that asks, so only without workers:
each worker would fill a cache of its own, lose it with the epoch,
and hold the data as often as there are workers.
"""

from __future__ import annotations

import mmap
import sys
import weakref

from . import fingerprint, memory
from .proof import Proof, Unfit, compare

LOOKED = 8  # samples that tell the shape
_PLAIN = (bool, int, float)
_made: dict = {}  # id of a data set that lives -> (weak reference to it, for whom, what it held, its cache)


def prove(data: object, n: int = 1000, seconds: float = 30.0) -> Proof:
    """Whether samples may be kept: the same index twice gives the same sample, nothing is drawn, nothing
    changes by reading."""
    from torch.utils.data import IterableDataset
    if isinstance(data, IterableDataset):
        return Proof("the data set is a stream without indices", 0, 0.0)
    return compare(data, None, n, seconds, twice=True)


def again(data: object, workers: int, batch: bool) -> object | None:
    """The cache that an earlier loader over the same data set has filled:
    many scripts make a loader for each epoch. None when there is none, or the data set has changed since."""
    lives, whom, held, reader = _made.get(id(data), (None, None, None, None))
    fits = (
        lives is not None
        and lives() is data
        and whom == (bool(workers), batch)
        and held == fingerprint.of(data)
    )
    return reader if fits else None


def forget(reader: object) -> None:
    """No further loader is given this one: what it kept is not what the data set gives."""
    for key in [key for key, made in _made.items() if made[3] is reader]:
        del _made[key]


def of(data: object, workers: int, limit: int | None, batch: bool) -> object:
    """A cache for `data`, which lives as long as the data set. `batch`: default_collate follows.
    Raises Unfit."""
    reader = _new(data, workers, limit, batch)
    key = id(data)
    try:
        lives = weakref.ref(data, lambda _, forget=_made.pop: forget(key, None))
    except TypeError:  # a list: the loader's own
        return reader
    reader.source = lives  # the cache does not keep alive what it is kept for
    _made[key] = lives, (bool(workers), batch), fingerprint.of(data), reader
    return reader


def _new(data: object, workers: int, limit: int | None, batch: bool) -> object:
    length = len(data)
    samples = [data[(length - 1) * n // max(1, LOOKED - 1)] for n in range(LOOKED)]
    kinds = {_kind_of(each) for each in samples}
    room = memory.allowed(limit)
    if len(kinds) == 1 and None not in kinds:
        return _Columns(data, samples[0], room, batch)
    if workers:
        raise Unfit("samples have different shapes, so workers cannot share them")
    return _Kept(data, room)


def _kind_of(sample: object) -> object:
    """The structure of a sample, to be compared; None where a part of it has no place in a column."""
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    if isinstance(sample, torch.Tensor):
        plain = (
            type(sample) is torch.Tensor
            and sample.layout is torch.strided
            and sample.device.type == "cpu"
            and not sample.requires_grad
        )
        return ("tensor", sample.dtype, tuple(sample.shape)) if plain else None
    if numpy is not None and type(sample) is numpy.ndarray:
        return (
            ("array", str(sample.dtype), sample.shape)
            if sample.dtype.kind in "iufb" and sample.dtype.isnative
            else None
        )
    if numpy is not None and isinstance(sample, numpy.generic):
        return ("scalar", str(sample.dtype)) if sample.dtype.kind in "iufb" else None
    if type(sample) in _PLAIN:
        return type(sample).__name__
    if type(sample) in (tuple, list):
        inside = [_kind_of(each) for each in sample]
        return None if None in inside else (type(sample).__name__, *inside)
    if type(sample) is dict:
        inside = [(key, _kind_of(each)) for key, each in sample.items()]
        return None if any(kind is None for _, kind in inside) else ("dict", *inside)
    return None


class _Source:
    """`data`: what is read, whether it is held or only known."""

    @property
    def data(self) -> object:
        return self.source()


class _Columns(_Source):
    """One column of shared memory for each part of a sample, and a mark for each sample."""

    def __init__(self, data: object, sample: object, room: int, batch: bool) -> None:
        torch = sys.modules["torch"]
        self.source, self.batch = (lambda: data), batch
        self.kind, self.leaves = _kind_of(sample), _leaves(sample)
        size = 1 + sum(max(1, each.numel()) * each.element_size() for each in self.leaves)
        # the first so many: any of them is asked as often as another
        self.rows = min(len(data), room // size)
        least = min(len(data), 64)
        if self.rows < least:
            raise Unfit(
                f"not enough memory: a cache of {least} samples needs {least * size:,} bytes, and can use "
                f"only {room:,} bytes"
            )
        self.columns = [_shared((self.rows, *each.shape), each.dtype) for each in self.leaves]
        self.marks = _shared((self.rows,), torch.uint8)
        self.shape = sample
        self.bytes = self.rows * size

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> object:
        return self.data[index] if self.batch else self.__getitems__([index])[0]

    def __getitems__(self, indices: object) -> object:
        torch = sys.modules["torch"]
        at = indices if isinstance(indices, torch.Tensor) else torch.tensor(indices, dtype=torch.int64)
        if self.rows < len(self.data) and int(at.max()) >= self.rows:
            return self._partly(at)
        self._fill(at)
        rows = [column.index_select(0, at) for column in self.columns]
        return self._batch(rows) if self.batch else self._samples(rows, len(at))

    def _fill(self, at: object) -> None:
        missing = at[self.marks.index_select(0, at) == 0]
        for index in missing.tolist():
            self._put(index, self.data[index])

    def _put(self, index: int, sample: object) -> None:
        if _kind_of(sample) != self.kind:
            raise Changed(f"sample {index} has a different shape than the first sample")
        for column, leaf in zip(self.columns, _leaves(sample)):  # noqa: B905  # Python 3.9
            column[index] = leaf
        self.marks[index] = 1

    def _partly(self, at: object) -> object:
        """Some of these have no place."""
        torch = sys.modules["torch"]
        inside = at < self.rows
        self._fill(at[inside])
        rows = [each.new_empty((len(at), *each.shape)) for each in self.leaves]
        where = inside.nonzero().flatten()
        for out, column in zip(rows, self.columns):  # noqa: B905
            out[where] = column.index_select(0, at[where])
        for n in (~inside).nonzero().flatten().tolist():
            for out, leaf in zip(rows, _leaves(self.data[int(at[n])])):  # noqa: B905
                out[n] = torch.as_tensor(leaf)
        return self._batch(rows) if self.batch else self._samples(rows, len(at))

    def _batch(self, rows: list) -> object:
        return _put_together(self.shape, iter(rows), as_batch=True)

    def _samples(self, rows: list, count: int) -> list:
        return [
            _put_together(self.shape, iter([each[n] for each in rows]), as_batch=False) for n in range(count)
        ]


class Changed(Exception):
    """A sample is not what it was when the cache was made."""


def _shared(shape: tuple, dtype: object) -> object:
    """Zeros that a forked child writes for all."""
    torch = sys.modules["torch"]
    size = torch.empty((), dtype=dtype).element_size()
    for each in shape:
        size *= each
    memory = torch.frombuffer(mmap.mmap(-1, max(1, size)), dtype=torch.uint8)
    return torch.empty(0, dtype=dtype).set_(memory.untyped_storage(), 0, shape)


def _leaves(sample: object) -> list:
    """Its parts as tensors, in their order."""
    torch = sys.modules["torch"]
    if isinstance(sample, torch.Tensor):
        return [sample]
    if type(sample) in (tuple, list, dict):
        return [
            leaf for each in (sample.values() if type(sample) is dict else sample) for leaf in _leaves(each)
        ]
    return [torch.tensor(sample, dtype=torch.float64) if type(sample) is float else torch.as_tensor(sample)]


def _put_together(shape: object, leaves: object, as_batch: bool) -> object:
    """`leaves` in the structure of `shape`: a batch as default_collate makes it, or one sample as it was."""
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    if type(shape) is dict:
        return {key: _put_together(each, leaves, as_batch) for key, each in shape.items()}
    if type(shape) in (tuple, list):
        inside = [_put_together(each, leaves, as_batch) for each in shape]
        return inside if as_batch or type(shape) is list else tuple(inside)
    leaf = next(leaves)
    if as_batch or isinstance(shape, torch.Tensor):
        return leaf
    if numpy is not None and isinstance(shape, (numpy.ndarray, numpy.generic)):
        return leaf.numpy() if isinstance(shape, numpy.ndarray) else leaf.numpy()[()]
    return leaf.item()


class _Kept(_Source):
    """Samples as they came, for the process that asks. What is given out is a copy:
    the script may write into it."""

    batch = False

    def __init__(self, data: object, room: int) -> None:
        self.source, self.room = (lambda: data), room
        self.kept: dict = {}

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> object:
        found = self.kept.get(index)
        if found is None:
            sample = self.data[index]
            size = _bytes(sample)
            if size > self.room:
                return sample
            self.room -= size
            found = self.kept[index] = sample
        return _copy(found)


def _bytes(sample: object) -> int:
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    if isinstance(sample, torch.Tensor):
        return sample.numel() * sample.element_size() + 200
    if numpy is not None and isinstance(sample, numpy.ndarray):
        return sample.nbytes + 200
    if isinstance(sample, (tuple, list)):
        return sum(map(_bytes, sample)) + 64
    if isinstance(sample, dict):
        return sum(map(_bytes, sample.values())) + 300
    if isinstance(sample, (str, bytes, int, float, type(None))):
        return sys.getsizeof(sample)
    kind = type(sample).__name__
    raise Unfit(f"samples contain objects of type {kind}, which Stoker's cache does not support")


def _copy(sample: object) -> object:
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    if isinstance(sample, torch.Tensor):
        return sample.clone()
    if numpy is not None and isinstance(sample, numpy.ndarray):
        return sample.copy()
    if type(sample) in (tuple, list):
        return type(sample)(map(_copy, sample))
    if isinstance(sample, tuple):
        return type(sample)(*map(_copy, sample))
    return {key: _copy(each) for key, each in sample.items()} if type(sample) is dict else sample
