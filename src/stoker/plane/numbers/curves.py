"""Curves: points in arrays, what later attempts replace, and fewer points for a picture, with the extremes. Pure."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

HELD_MAX = 400_000  # points of one curve in memory
Point = tuple[float, float, float | None]  # position, value, Unix time


@dataclass(slots=True)
class Curve:
    """One series. source: which library or log told it. axis: what its positions count. sample: a printed line that it was read from."""

    name: str
    source: str
    axis: str
    unit: str = ""
    sample: str = ""
    _at: array = field(default_factory=lambda: array("d"))
    _value: array = field(default_factory=lambda: array("d"))
    _time: array = field(default_factory=lambda: array("d"))

    _dropped: int = 0

    def add(self, at: float, value: float, time: float | None) -> None:
        """One point more. Of very many points most are let go; the extremes stay."""
        self._at.append(at)
        self._value.append(value)
        self._time.append(math.nan if time is None else time)
        if len(self._at) > HELD_MAX:
            self._keep(thin(self._value, HELD_MAX // 2))

    def _keep(self, chosen: Sequence[int]) -> None:
        self._dropped += len(self._at) - len(chosen)
        for name in ("_at", "_value", "_time"):
            own = getattr(self, name)
            setattr(self, name, array("d", (own[i] for i in chosen)))

    def __len__(self) -> int:
        return len(self._at)

    def points(self, most: int | None = None) -> Iterator[Point]:
        """All of them, or at most about so many: of each part the first, the last and the extremes."""
        for i in range(len(self)) if most is None else thin(self._value, most):
            time = self._time[i]
            yield self._at[i], self._value[i], None if math.isnan(time) else time

    def before(self, position: float) -> int:
        """How many points come before the first one at or after a position."""
        return next((i for i, at in enumerate(self._at) if at >= position), len(self))

    def ends(self) -> float | None:
        """The time of its last point."""
        return None if not len(self) or math.isnan(self._time[-1]) else self._time[-1]

    def renamed(self, name: str) -> Curve:
        """The same points under another name."""
        return self if name == self.name else replace(self, name=name)

    def joined(self, later: Curve) -> Curve:
        """With what a later attempt told: from its first position on only that counts."""
        whole = Curve(self.name, self.source, later.axis, later.unit, later.sample)
        upto = self.before(min(later._at)) if len(later) else len(self)
        whole._dropped = later._dropped + (self._dropped if upto else 0)
        for name in ("_at", "_value", "_time"):
            setattr(whole, name, getattr(self, name)[:upto] + getattr(later, name))
        return whole

    def facts(self) -> dict:
        """`{"count", "first", "last", "min", "max"}`; the last four are points, None where no value is finite."""
        ends = {"first": 0, "last": len(self) - 1} if len(self) else {}
        lowest, highest, _ = _extremes(self._value, 0, len(self))
        extremes = {"min": lowest, "max": highest} if lowest is not None else {}
        chosen = {**dict.fromkeys(("first", "last", "min", "max")), **ends, **extremes}
        points = {name: i if i is None else [self._at[i], told(self._value[i])] for name, i in chosen.items()}
        return {"count": len(self) + self._dropped, **points}


def thin(values: Sequence[float], most: int) -> list[int]:
    """The indices of at most about `most` values: of equal parts the first, the smallest, the largest, the last, and the first that is
    not finite."""
    count = len(values)
    if count <= most:
        return list(range(count))
    parts = max(1, most // 4)
    kept: list[int] = []
    for part in range(parts):
        begin, end = part * count // parts, (part + 1) * count // parts
        kept += sorted({begin, end - 1, *(i for i in _extremes(values, begin, end) if i is not None)})
    return kept


def _extremes(values: Sequence[float], begin: int, end: int) -> tuple[int | None, int | None, int | None]:
    """The first indices, from begin to before end, of the smallest and of the largest finite value, and of one that is not finite."""
    part = values[begin:end]
    if end > begin and math.isfinite(sum(part)):  # mostly: then all are finite
        return begin + part.index(min(part)), begin + part.index(max(part)), None
    finite = [i for i in range(begin, end) if math.isfinite(values[i])]
    odd = next((i for i in range(begin, end) if not math.isfinite(values[i])), None)
    if not finite:
        return None, None, odd
    return min(finite, key=values.__getitem__), max(finite, key=values.__getitem__), odd


def told(value: float) -> float | str:
    """A value for JSON, which has no words for these: "nan", "inf", "-inf"."""
    return value if math.isfinite(value) else str(value)


def join(attempts: Sequence[Sequence[Curve]]) -> list[Curve]:
    """The curves of all attempts, in order: of what was told twice the later attempt counts, step by step."""
    whole: dict[tuple[str, str], Curve] = {}
    for curves in attempts:
        for curve in curves:
            key = (curve.source, curve.name)
            earlier = whole.get(key)
            whole[key] = curve if earlier is None else earlier.joined(curve)
    return list(whole.values())
