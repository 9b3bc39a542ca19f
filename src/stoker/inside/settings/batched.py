"""A whole batch in a few calls instead of a call for each sample:
for data sets whose samples are rows of what they hold.

Nothing is believed of a class: a plan is made from what some samples are (`plan`), and counts only if it
gives the same on many more (`prove`). pictures.py: rows that go through a transform of pixels.
"""

from __future__ import annotations

import sys

from . import beside, fingerprint, pictures
from .proof import Proof, Unfit, collate, compare, difference, own_doing, takes_away

LOOKED = 24  # samples from which a plan is made
WIDE = 64  # entries of a small container that are looked at as columns
_PLAIN = (int, float, bool)


class Plan:
    """`rows(indices)`, a LongTensor, gives the batch that default_collate would make of these samples."""

    about = ""


def prove(data: object, n: int = 1000, seconds: float = 30.0, made: Plan | None = None) -> Proof:
    """Whether batches can be read at once (`made`: by this plan):
    equal on `n` items drawn at random (all of them, if there are fewer)."""
    try:
        with beside.aside(data):
            made = made or plan(data)
    except Unfit as e:
        return Proof(str(e), 0, 0.0)
    except Exception as e:
        return Proof(f"{type(e).__name__}: {e}"[:200], 0, 0.0)
    return compare(data, lambda indices: made.rows(_tensor(indices)), n, seconds)


def plan(data: object) -> Plan:
    """How this data set is read in batches. Raises Unfit."""
    from torch.utils import data as kinds

    if (
        isinstance(data, kinds.IterableDataset)
        or not hasattr(data, "__getitem__")
        or not hasattr(data, "__len__")
    ):
        raise Unfit("the data set is a stream without indices")
    if not len(data):
        raise Unfit("the data set is empty")
    reads = getattr(type(data), "__getitem__", None)
    if reads is kinds.TensorDataset.__getitem__:
        return _Tensors(data)
    if reads is kinds.Subset.__getitem__:
        return _Part(data)
    if reads is kinds.ConcatDataset.__getitem__:
        return _Chain(data)
    why = takes_away(data)
    if why:
        raise Unfit(why)
    samples = _Samples(data)
    try:
        return _Columns(data, samples)
    except Unfit as e:
        why = e
    try:
        return pictures.Folder(data, samples.batch, samples.indices)
    except Exception:  # no folder of pictures
        pass
    try:
        return _Called(data, samples)
    except Unfit:
        raise why from None


def _tensor(indices: object) -> object:
    torch = sys.modules["torch"]
    return indices if isinstance(indices, torch.Tensor) else torch.tensor(indices, dtype=torch.int64)


# ---- torch's own

class _Tensors(Plan):
    about = "rows of tensors"

    def __init__(self, data: object) -> None:
        self.tensors = data.tensors

    def rows(self, indices: object) -> list:
        return [
            each.index_select(0, indices) if each.device == indices.device else each[indices]
            for each in self.tensors
        ]


class _Part(Plan):
    def __init__(self, data: object) -> None:
        self.inner = plan(data.dataset)
        self.about = self.inner.about
        self.indices = sys.modules["torch"].as_tensor(data.indices, dtype=sys.modules["torch"].int64)

    def rows(self, indices: object) -> object:
        return self.inner.rows(self.indices[indices])


class _Chain(Plan):
    def __init__(self, data: object) -> None:
        torch = sys.modules["torch"]
        self.parts = [plan(each) for each in data.datasets]
        self.about = self.parts[0].about
        self.ends = torch.tensor(data.cumulative_sizes)
        self.starts = torch.tensor([0, *data.cumulative_sizes[:-1]])

    def rows(self, indices: object) -> object:
        torch = sys.modules["torch"]
        part = torch.bucketize(indices, self.ends, right=True)
        found = []
        for n in part.unique().tolist():
            where = (part == n).nonzero().flatten()
            found.append((where, self.parts[n].rows(indices[where] - self.starts[n])))
        return found[0][1] if len(found) == 1 else _together(found, len(indices))


def _together(found: list, length: int) -> object:
    torch, first = sys.modules["torch"], found[0][1]
    if isinstance(first, torch.Tensor):
        out = first.new_empty((length, *first.shape[1:]))
        for where, rows in found:
            if rows.dtype != out.dtype or rows.shape[1:] != out.shape[1:]:
                raise Unfit("the data sets in the ConcatDataset return samples of different shapes or dtypes")
            out[where] = rows
        return out
    if isinstance(first, dict):
        return {key: _together([(where, rows[key]) for where, rows in found], length) for key in first}
    if isinstance(first, list):
        return [_together([(where, rows[n]) for where, rows in found], length) for n in range(len(first))]
    raise Unfit(f"samples contain objects of type {type(first).__name__}, which Stoker cannot batch")


# ---- a data set of the script's own, or of a library: what its samples are, seen from some of them

class _Samples:
    """A few of them, and each of their parts under its path."""

    def __init__(self, data: object) -> None:
        length = len(data)
        self.length = length
        self.indices = sorted({(length - 1) * n // max(1, LOOKED - 1) for n in range(LOOKED)})
        first = data[0]  # and what is opened at the first read
        before, held = beside.states(data), fingerprint.of(data)
        self.samples = [data[n] for n in self.indices]
        why = own_doing(data, before, held) or difference(first, self.samples[0])
        if why:
            raise Unfit(why)
        self.batch = collate(self.samples)
        self.at = _tensor(self.indices)


class _Columns(Plan):
    """Each part of a sample is a row of something that the data set holds,
    as it is or through a transform of its pixels."""

    about = "rows of the stored data"

    def __init__(self, data: object, samples: _Samples) -> None:
        self.columns = columns(data, samples.length)
        self.data = data
        self.reader = self._reader(samples.batch, samples, "sample")
        del self.data, self.columns

    def rows(self, indices: object) -> object:
        return _read(self.reader, indices)

    def _reader(self, part: object, samples: _Samples, path: str) -> object:
        torch = sys.modules["torch"]
        if isinstance(part, torch.Tensor):
            return self._leaf(part, samples, path)
        if type(part) is dict:
            return {key: self._reader(each, samples, f"{path}[{key!r}]") for key, each in part.items()}
        if type(part) is list:
            return [self._reader(each, samples, f"{path}[{n}]") for n, each in enumerate(part)]
        raise Unfit(f"`{path}` has the type {type(part).__name__}, which Stoker cannot batch")

    def _leaf(self, part: object, samples: _Samples, path: str) -> object:
        for column in self.columns:
            for way in _WAYS:
                found = way(column, part, samples.at)
                if found is not None:
                    return found
        for column in self.columns:
            found = pictures.through(column, part, samples.at, self.data)
            if found is not None:
                return found
        raise Unfit(f"`{path}` is not a row of the stored data, so Stoker cannot read whole batches")


def _read(reader: object, indices: object) -> object:
    if type(reader) is list:
        return [_read(each, indices) for each in reader]
    return (
        {key: _read(each, indices) for key, each in reader.items()}
        if type(reader) is dict
        else reader(indices)
    )


def columns(data: object, length: int) -> list:
    """Tensors with a row for each sample, out of its attributes; pictures first."""
    torch, found = sys.modules["torch"], []
    for value in _inside(getattr(data, "__dict__", {}), 0):
        try:
            tensor = _column(value, length)
        except (TypeError, ValueError, RuntimeError):  # no numbers, or not of one shape
            continue
        if tensor is not None:
            found.append(tensor)
    return [*sorted(found, key=lambda each: -each.dim()), torch.arange(length)]


def _inside(values: object, deep: int) -> list:
    found = []
    for each in values.values() if isinstance(values, dict) else values:
        found.append(each)
        if (
            deep < 2
            and (
                isinstance(each, dict)
                or type(each) is tuple
                or (type(each) is list and not isinstance(each[:1], _PLAIN))
            )
            and len(each) <= WIDE
        ):
            found += _inside(each, deep + 1)
    return found


def _column(value: object, length: int) -> object:
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    if isinstance(value, torch.Tensor):
        return (
            value.detach() if value.dim() and len(value) == length and value.layout is torch.strided else None
        )
    if (
        numpy is not None
        and isinstance(value, numpy.ndarray)
        and value.ndim
        and len(value) == length
        and value.dtype.kind in "iufb"
    ):
        return torch.from_numpy(value) if value.flags.writeable else torch.from_numpy(value.copy())
    if type(value) in (list, tuple) and len(value) == length and type(value[0]) in _PLAIN:
        kinds = set(map(type, value))
        return (
            torch.tensor(value, dtype=torch.float64 if kinds == {float} else None)
            if len(kinds) == 1
            else None
        )
    return None


class _As:
    """Rows of a column, in the kind and shape of the samples."""

    def __init__(self, column: object, part: object, scale: bool = False, turn: bool = False) -> None:
        self.column, self.dtype, self.shape, self.scale, self.turn = (
            column,
            part.dtype,
            part.shape[1:],
            scale,
            turn,
        )
        self.as_it_is = (
            not scale and not turn and column.dtype == part.dtype and column.shape[1:] == part.shape[1:]
        )

    def __call__(self, indices: object) -> object:
        rows = self.column.index_select(0, indices)
        if self.as_it_is:
            return rows
        if self.turn:
            rows = rows.movedim(-1, 1)
        rows = rows.to(self.dtype)
        if self.scale:
            rows = rows.div_(255)
        return rows.reshape(len(indices), *self.shape).contiguous()


def _as_it_is(column: object, part: object, at: object) -> object:
    return _if_equal(_As(column, part), column, part, at)


def _scaled(column: object, part: object, at: object) -> object:
    if column.is_floating_point() or not part.is_floating_point():
        return None
    return _if_equal(_As(column, part, True), column, part, at) or (
        _if_equal(_As(column, part, True, True), column, part, at) if column.dim() == 4 else None)


def _turned(column: object, part: object, at: object) -> object:
    return _if_equal(_As(column, part, False, True), column, part, at) if column.dim() == 4 else None


def _if_equal(reader: _As, column: object, part: object, at: object) -> _As | None:
    torch = sys.modules["torch"]
    if column[0].numel() != part[0].numel() or column.is_complex() != part.is_complex():
        return None
    found = reader(at)
    same = torch.equal(found, part) or (
        found.is_floating_point() and torch.equal(found.nan_to_num(7.0), part.nan_to_num(7.0))
    )
    return reader if same else None


_WAYS = (_as_it_is, _scaled, _turned)


class _Called(Plan):
    """Its own `__getitem__` with many indices at once."""

    def __init__(self, data: object, samples: _Samples) -> None:
        self.data = data
        held = fingerprint.of(data)
        for form in _FORMS:
            try:
                first, again = self._call(form, samples.at), self._call(form, samples.at)
                self._call(form, samples.at[:1])
            except Exception:
                continue
            if fingerprint.of(data) != held:
                raise Unfit("the data set changes while it is read")
            if (
                not difference(samples.batch, first)
                and not difference(first, again)
                and not _shared(first, again)
            ):
                self.form, self.about = form, "the data set's own __getitem__, called with many indices"
                return
        raise Unfit("the data set cannot read several samples at once")

    def _call(self, form: object, indices: object) -> object:
        return _batch_of(self.data[form(indices)], len(indices))

    def rows(self, indices: object) -> object:
        return self._call(self.form, indices)


def _batch_of(value: object, length: int) -> object:
    """What came out, in the kinds that default_collate gives."""
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    if isinstance(value, torch.Tensor):
        if not value.dim() or len(value) != length:
            raise Unfit("the data set, called with several indices, does not return one row for each index")
        return value
    if numpy is not None and isinstance(value, numpy.ndarray):
        return _batch_of(torch.as_tensor(value), length)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_batch_of(each, length) for each in value))
    if type(value) is tuple:
        return [_batch_of(each, length) for each in value]
    if type(value) is dict:
        return {key: _batch_of(each, length) for key, each in value.items()}
    if type(value) in (bool, int):
        return torch.tensor([value] * length)
    if type(value) is float:
        return torch.tensor([value] * length, dtype=torch.float64)
    raise Unfit(f"a batch contains objects of type {type(value).__name__}, which Stoker does not support")


def _shared(one: object, other: object) -> bool:
    """Whether two batches have memory in common: then it is the data set's own."""
    torch = sys.modules["torch"]
    if isinstance(one, torch.Tensor):
        return one.numel() > 0 and one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    if isinstance(one, dict):
        return any(_shared(one[key], other[key]) for key in one)
    return isinstance(one, (list, tuple)) and any(_shared(a, b) for a, b in zip(one, other))  # noqa: B905  # Python 3.9


def _as_array(indices: object) -> object:
    return indices.numpy()


_FORMS = (lambda indices: indices, _as_array, lambda indices: indices.tolist())
