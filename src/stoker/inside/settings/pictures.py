"""Pixels through a transform that looks at each of them alone (ToTensor, Normalize and all that is like
them): the transform is asked once what it makes of each of the 256 values, and batches are made by arithmetic
that gives these very numbers, or by that table.
"""

from __future__ import annotations

import sys

VALUES = 256


def through(column: object, part: object, at: object, data: object) -> object:
    """How `part`, some samples, comes from rows of `column` by a transform that the data set has;
    None where it does not."""
    torch = sys.modules["torch"]
    if (
        column.dtype is not torch.uint8
        or column.dim() not in (3, 4)
        or column[0].numel() != part[0].numel()
        or column.device.type != "cpu"
    ):
        return None
    for transform in transforms(data):
        for form in FORMS:
            try:
                found = _pixels(column, part, at, transform, form)
            except Exception:  # this one takes something else
                continue
            if found is not None:
                return found
    return None


def transforms(data: object) -> list:
    return [each for each in data.__dict__.values() if callable(each) and not isinstance(each, type)]


def _pixels(column: object, part: object, at: object, transform: object, form: object) -> object:
    torch = sys.modules["torch"]
    rows = column[at]
    first = transform(form(rows[0]))
    if not isinstance(first, torch.Tensor) or first.dtype != part.dtype or not torch.equal(first, part[0]):
        return None
    channels = rows.shape[3] if rows.dim() == 4 else 1
    table = torch.stack(
        [
            _channels(transform(form(torch.full_like(rows[0], value))), channels, first.shape)
            for value in range(VALUES)
        ],
        1,
    )
    for turn in (True, False) if channels > 1 else (False,):
        for make in (_sums(table, transform), table):
            found = Pixels(column, part, make, turn)
            if make is not None and torch.equal(found(at), part):
                return found
    return None


def _channels(out: object, channels: int, shape: object) -> object:
    """What one value became, in each channel. ValueError where that depends on the place."""
    if out.shape != shape:
        raise ValueError("another shape")
    if channels == 1:
        flat = out.reshape(1, -1)
    else:
        flat = out.reshape(channels, -1) if out.shape[0] == channels else out.reshape(-1, channels).T
    if not bool((flat == flat[:, :1]).all()):
        raise ValueError("the result of the transform depends on the position of the pixel")
    return flat[:, 0]


# ---- arithmetic that gives the table

class Sums:
    """Scaling, then the mean off and by the deviation, in the order and kind in which torchvision does it."""

    def __init__(self, dtype: object, scale: object, mean: object, deviation: object) -> None:
        self.dtype, self.scale, self.mean, self.deviation = dtype, scale, mean, deviation
        self.one = (mean.item(), deviation.item()) if mean is not None and mean.numel() == 1 else None
        self.contiguous = sys.modules["torch"].contiguous_format

    def __call__(self, rows: object, channel: int) -> object:
        """`rows`: bytes, channels along dimension `channel` (0: there is but one). A new tensor."""
        out = rows.to(self.dtype, memory_format=self.contiguous)
        if self.scale == "by":
            out.div_(255)
        elif self.scale == "times":
            out.mul_(1 / 255)
        if self.one is not None:
            out.sub_(self.one[0]).div_(self.one[1])
        elif self.mean is not None:
            shape = [-1 if n == channel else 1 for n in range(out.dim())]
            out.sub_(self.mean.view(shape)).div_(self.deviation.view(shape))
        return out


def _sums(table: object, transform: object) -> Sums | None:
    """Arithmetic whose results are those of the table, to the last bit."""
    torch = sys.modules["torch"]
    values = torch.arange(VALUES, dtype=torch.uint8).expand(len(table), VALUES)
    if not table.is_floating_point():
        return Sums(table.dtype, "", None, None) if torch.equal(values.to(table.dtype), table) else None
    for mean, deviation in [(None, None), *_normals(transform, table)]:
        for scale in ("by", "times", ""):
            found = Sums(table.dtype, scale, mean, deviation)
            if torch.equal(found(values, 0), table):
                return found
    return None


def _normals(transform: object, table: object) -> list:
    """Mean and deviation of each step that has both."""
    torch = sys.modules["torch"]
    found = []
    for step in steps(transform):
        mean, deviation = getattr(step, "mean", None), getattr(step, "std", None)
        if mean is None or deviation is None:
            continue
        try:
            both = [torch.as_tensor(each, dtype=table.dtype).reshape(-1) for each in (mean, deviation)]
        except (TypeError, ValueError, RuntimeError):
            continue
        if all(each.numel() in (1, len(table)) for each in both):
            size = max(each.numel() for each in both)
            found.append(tuple(each.expand(size).clone() for each in both))
    return found


def steps(transform: object) -> list:
    """The single steps of a transform, in their order."""
    inner = getattr(transform, "transforms", None)
    return (
        [step for each in inner for step in steps(each)] if isinstance(inner, (list, tuple)) else [transform]
    )


class Pixels:
    """Rows of `column` as these samples are. `turn`: the channels come first."""

    def __init__(self, column: object, part: object, make: object, turn: bool) -> None:
        self.column, self.shape = (
            column if turn else column.reshape(len(column), *part.shape[1:]),
            part.shape[1:],
        )
        self.make, self.turn, self.sums = make, turn, isinstance(make, Sums)

    def __call__(self, indices: object) -> object:
        return self.of(self.column.index_select(0, indices))

    def of(self, rows: object) -> object:
        """What becomes of these pixels."""
        if self.turn:
            rows = rows.movedim(-1, 1)
        return self.make(rows, 1 if self.turn else rows.dim() - 1) if self.sums else self._looked_up(rows)


    def _looked_up(self, rows: object) -> object:
        torch = sys.modules["torch"]
        places = rows.to(torch.int64)
        if len(self.make) > 1:
            places += (torch.arange(len(self.make)) * VALUES).view([-1, 1, 1] if self.turn else [-1])
        return self.make.reshape(-1).index_select(0, places.reshape(-1)).view(rows.shape)


# ---- pictures in files

class Folder:
    """Each sample is a file that is opened and cut to one size, and a number;
    what follows looks at each pixel alone."""

    about = "image files, with the pixels of a whole batch at once"

    def __init__(self, data: object, batch: object, indices: list) -> None:
        torch = sys.modules["torch"]
        files, self.open = getattr(data, "samples", None), getattr(data, "loader", None)
        if (
            type(files) is not list
            or not callable(self.open)
            or type(batch) is not list
            or len(batch) != 2
            or batch[0].dim() != 4
        ):
            raise ValueError("the data set is not a folder of images")
        self.paths = [path for path, _ in files]
        self.targets = torch.tensor([target for _, target in files])
        every = steps(data.transform)
        for cut in range(len(every)):
            self.head = every[:cut]
            try:
                rows = self._pixels_of(indices)
                found = _pixels(rows, batch[0], torch.arange(len(indices)), _Steps(every[cut:]), _picture)
            except Exception:  # a step that does more than look at pixels
                continue
            if found is not None:
                self.made = found
                return
        raise ValueError("the transform computes a pixel from several pixels")

    def rows(self, indices: object) -> list:
        """Pictures and numbers."""
        rows = self._pixels_of(indices.tolist())
        return [
            self.made.of(rows if self.made.turn else rows.reshape(len(rows), *self.made.shape)),
            self.targets[indices],
        ]

    def _pixels_of(self, indices: list) -> object:
        torch, numpy = sys.modules["torch"], sys.modules["numpy"]
        found = []
        for n in indices:
            picture = self.open(self.paths[n])
            for step in self.head:
                picture = step(picture)
            found.append(numpy.asarray(picture))
        return torch.from_numpy(numpy.stack(found))


class _Steps:
    def __init__(self, inner: list) -> None:
        self.transforms = inner

    def __call__(self, value: object) -> object:
        for step in self.transforms:
            value = step(value)
        return value


# ---- what a transform is given

def _picture(row: object) -> object:
    image = sys.modules["PIL.Image"]
    return image.fromarray(row.numpy())


def _array(row: object) -> object:
    return row.numpy()


def _itself(row: object) -> object:
    return row.clone()


FORMS = (_picture, _array, _itself)
