"""Curves: points in arrays, what later attempts replace, and thinning:
fewer points for a picture, with the extremes. Pure."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

HELD_MAX = 400_000  # points of one curve in memory
ARRAYS = ("_at", "_value", "_time", "_nth")
Point = tuple[float, float, float | None]  # position, value, Unix time


@dataclass(slots=True)
class Curve:
    """One series. source: the library or log that it comes from. axis: the unit of its positions. sample:
    an example of its printed lines."""

    name: str
    source: str
    axis: str
    unit: str = ""
    sample: str = ""
    _at: array = field(default_factory=lambda: array("d"))
    _value: array = field(default_factory=lambda: array("d"))
    _time: array = field(default_factory=lambda: array("d"))

    # once points were let go: the number of each, from 0
    _nth: array = field(default_factory=lambda: array("d"))
    _dropped: int = 0

    def add(self, at: float, value: float, time: float | None) -> None:
        """Add one point. A very long curve drops points, but keeps the extreme values."""
        if self._nth:
            self._nth.append(self.count)
        self._at.append(at)
        self._value.append(value)
        self._time.append(math.nan if time is None else time)
        if len(self._at) > HELD_MAX:
            self.thinned(HELD_MAX // 2)

    def thinned(self, most: int) -> None:
        """Drop points until about this many are left; keeps the extreme values."""
        chosen = thin(self._value, most, self._nth)
        if len(chosen) == len(self):
            return
        if not self._nth:
            self._nth = array("d", range(len(self)))
        self._dropped += len(self) - len(chosen)
        for name in ARRAYS:
            own = getattr(self, name)
            setattr(self, name, array("d", (own[i] for i in chosen)))

    def packed(self) -> tuple[int, list[array]]:
        """(number of dropped points, arrays), for `unpacked`."""
        return self._dropped, [getattr(self, name) for name in ARRAYS]

    def unpacked(self, dropped: int, arrays: Sequence[array]) -> Curve:
        """Return self, with the points of `packed`. Raises ValueError if the arrays have different
        lengths."""
        self._dropped = dropped
        self._at, self._value, self._time, self._nth = arrays
        if len({len(self._at), len(self._value), len(self._time), len(self._nth) or len(self)}) > 1 or bool(
            dropped
        ) != bool(self._nth):
            raise ValueError("arrays of different lengths")
        if not math.isfinite(sum(self._nth)):
            raise ValueError("positions that are not finite")
        return self

    @property
    def count(self) -> int:
        """Number of points before any were dropped."""
        return len(self) + self._dropped

    def __len__(self) -> int:
        return len(self._at)

    def points(self, most: int | None = None) -> Iterator[Point]:
        """All points, or at most about this many: of each part the first, the last and the extreme values."""
        for i in range(len(self)) if most is None else thin(self._value, most, self._nth):
            time = self._time[i]
            yield self._at[i], self._value[i], None if math.isnan(time) else time

    def before(self, position: float) -> int:
        """Number of points before the first point at or after a position."""
        return next((i for i, at in enumerate(self._at) if at >= position), len(self))

    def ends(self) -> float | None:
        """Time of the last point."""
        return None if not len(self) or math.isnan(self._time[-1]) else self._time[-1]

    def renamed(self, name: str) -> Curve:
        """A curve with the same points and another name."""
        return self if name == self.name else replace(self, name=name)

    def joined(self, later: Curve) -> Curve:
        """This curve, replaced by a later attempt's curve from the first position of that curve on."""
        whole = Curve(self.name, self.source, later.axis, later.unit, later.sample)
        upto = self.before(min(later._at)) if len(later) else len(self)
        for name in ("_at", "_value", "_time"):
            setattr(whole, name, getattr(self, name)[:upto] + getattr(later, name))
        if self._nth or later._nth:
            whole._nth = self._numbers()[:upto]
            before = whole._nth[-1] + 1 if upto else 0.0
            whole._nth.extend(before + n for n in later._numbers())
            whole._dropped = int(before) + later.count - len(whole)
        return whole

    def _numbers(self) -> array:
        return self._nth[:] if self._nth else array("d", range(len(self)))

    def facts(self) -> dict:
        """`{"count", "first", "last", "min", "max"}`; the last four are points, or None if no value is
        finite."""
        ends = {"first": 0, "last": len(self) - 1} if len(self) else {}
        lowest, highest, _ = _extremes(self._value, 0, len(self))
        extremes = {"min": lowest, "max": highest} if lowest is not None else {}
        chosen = {**dict.fromkeys(("first", "last", "min", "max")), **ends, **extremes}
        points = {name: i if i is None else [self._at[i], told(self._value[i])] for name, i in chosen.items()}
        return {"count": self.count, **points}


def thin(values: Sequence[float], most: int, numbers: Sequence[float] = ()) -> list[int]:
    """Indices of at most about `most` values: of equal parts the first, the smallest, the largest, the
    last, and the first that is not finite. numbers: if values were dropped before, the original number of
    each value, so that the parts are equal in the original numbering."""
    count = len(values)
    if count <= most:
        return list(range(count))
    parts = max(1, most // 4)
    whole = numbers[-1] + 1 if numbers else count
    edges = [
        bisect_left(numbers, part * whole / parts) if numbers else part * count // parts
        for part in range(parts + 1)
    ]
    kept: list[int] = []
    for begin, end in pairwise(edges):
        if begin < end:
            kept += sorted({begin, end - 1, *(i for i in _extremes(values, begin, end) if i is not None)})
    return kept


def _extremes(values: Sequence[float], begin: int, end: int) -> tuple[int | None, int | None, int | None]:
    """The first indices, from begin to before end, of the smallest and of the largest finite value, and of
    one that is not finite."""
    part = values[begin:end]
    if end > begin and math.isfinite(sum(part)):  # mostly: then all are finite
        return begin + part.index(min(part)), begin + part.index(max(part)), None
    finite = [i for i in range(begin, end) if math.isfinite(values[i])]
    odd = next((i for i in range(begin, end) if not math.isfinite(values[i])), None)
    if not finite:
        return None, None, odd
    return min(finite, key=values.__getitem__), max(finite, key=values.__getitem__), odd


def told(value: float) -> float | str:
    """A value for JSON, which cannot represent these: "nan", "inf", "-inf"."""
    return value if math.isfinite(value) else str(value)


def join(attempts: Sequence[Sequence[Curve]]) -> list[Curve]:
    """Join the curves of all attempts, in order. For steps that appear twice, the later attempt counts."""
    whole: dict[tuple[str, str], Curve] = {}
    for curves in attempts:
        for curve in curves:
            key = (curve.source, curve.name)
            earlier = whole.get(key)
            whole[key] = curve if earlier is None else earlier.joined(curve)
    return list(whole.values())
