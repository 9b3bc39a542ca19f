"""The series that a log prints, by the rule "precision before recall":
a curve that is wrong costs trust in all others."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from stoker.plane.numbers import axes, fields, tables, words
from stoker.plane.numbers.fields import Line, Value
from stoker.plane.numbers.screen import Screen, Shown

KINDS_MAX = 2000  # different kinds of lines; a log with more of them prints no tables of numbers
VALUES_MAX = 200  # of one line
POINTS_MAX = 2_000_000  # of one kind of line
_BAR = re.compile(
    r"^(?P<title>.*?)\s*\d{1,3}%\s?\|[^|]*\|\s*(?P<n>\d+)/(?P<of>\d+)\s*\[(?P<inner>[^\]]*)\](?P<rest>.*)$"
)
_OPEN_BAR = re.compile(r"^(?P<title>.*?)\s*(?P<n>\d+)(?:it|\w+) \[\d+:\d\d(?P<inner>[^\]]*)\](?P<rest>.*)$")
_SCALED_BAR = re.compile(
    r"^.*?\d{1,3}%\s?\|[^|]*\|\s*[\d.]+[kMGT]?\w*/[\d.]+[kMGT]?\w*\s*\[[^\]]*\](?P<rest>.*)$"
)
_INNER = re.compile(r"^[^,]*(?:,\s*[^,=]*(?:/s|s/\w+)\s*(?=,|$))?,?")
_KERAS = re.compile(r"^\s*(?P<n>\d+)/(?P<of>\d+)\s+(?:\[[=>.\s]*\]|━+|-)\s*-?\s*(?P<rest>.*)$")
_HEADING = frozenset(
    (
        "phase set mode result results error loop stage statistics stats summary epoch data split loss "
        "losses "
        # words beside the split of a line that only says what follows
        "performance step pass"
    ).split()
)


@dataclass(slots=True)
class Kind:
    """All lines of one form, with the same names."""

    names: list[Value]
    drawn: bool
    sample: str
    form: str
    places: list[axes.Place] = field(default_factory=list)
    rows: list[tuple[float, ...]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    ranks: list[int | None] = field(default_factory=list)


@dataclass(slots=True)
class Series:
    """One curve. points: (position, value, offset in the log). bar: read from the frames of a progress
    bar."""

    name: str
    axis: str
    unit: str
    sample: str
    points: list[tuple[float, float, int]]
    bar: bool = False
    guessed: bool = False  # see axes.Axis


class Parser:
    """Parses pieces of one log; `series` may be called at any time."""

    def __init__(self) -> None:
        self._screen = Screen()
        self._kinds: dict[tuple, Kind] = {}
        self._tables = tables.Tables()
        self.epoch: tuple[float, int | None] | None = None  # the last epoch that was named, and of how many
        self._epoch: float | None = None
        self._step: float | None = None
        self._split: str | None = None
        self._turns: dict[tuple, tuple[int, int]] = {}
        self._keras: tuple[Line, Shown] | None = None
        self._fresh_epoch = False

    def feed(self, data: bytes) -> None:
        """Add a piece of the log."""
        for shown in self._screen.feed(data):
            self._take(shown)

    def end(self, whole: bool) -> None:
        """End of the log. whole: the process ended normally, so its last line is complete."""
        for shown in self._screen.end(whole):
            self._take(shown)
        self._flush()

    def _flush(self) -> None:
        for line, shown in self._tables.flush():
            self._add(line, shown)
        self._end_keras()

    # ---- lines

    def _take(self, shown: Shown) -> None:
        text = shown.text
        if "|" in text or "[" in text:
            bar = _BAR.match(text) or _OPEN_BAR.match(text)
            if bar:
                self._take_bar(bar, shown)
                return
            scaled = _SCALED_BAR.match(text)
            if scaled:
                text = scaled["rest"]
        if "/" in text and (keras := _KERAS.match(text)) and re.search(r"\w: ", keras["rest"]):
            self._take_keras(keras, shown)
            return
        row, done = self._tables.take(text, shown)
        for each in done:
            self._add(*each)
        if row is not None:
            self._add(row, shown)
            return
        self._end_keras()
        if self._tables.inside or not text.strip():
            return
        line = fields.read(text)
        if line is None:
            self._heading(text)
        elif line.values:
            self._add(line, shown)
        else:
            self._context(line, text)
        self._see_epoch(line)

    def _take_bar(self, bar: re.Match, shown: Shown) -> None:
        found = bar.groupdict()
        title, rest = found["title"] or "", found["rest"] or ""
        row, _ = self._tables.take(title.rpartition(":")[0] or title, shown, header_too=title)
        n, of = int(found["n"]), int(found["of"]) if found.get("of") else None
        if row is not None:
            if of is None or n == of:
                self._add(row, shown)
        else:
            head = fields.read(title) or Line(words=title.strip(" :"), split=words.split_of(title))
            inner = fields.read(_INNER.sub("", found["inner"], count=1)) or Line()
            split = head.split or words.split_of(title)
            values = [
                Value(v.name, v.value, v.unit, v.split or (split if words.takes_split(v.name) else None))
                for v in [*head.values, *inner.values]
            ]
            epoch = head.epoch if head.epoch is not None else inner.epoch
            line = Line(
                values=values,
                step=inner.step,
                step_name=inner.step_name,
                epoch=epoch,
                place=n,
                of=of,
                split=split,
                words=head.words,
                form="bar",
            )
            self._see_epoch(head)
            if head.epoch is not None:
                self._epoch = head.epoch
            if values:
                self._add(line, shown)
        if any(c.isalpha() for c in rest):
            self._take(Shown(rest, shown.offset, shown.drawn))

    def _see_epoch(self, line: Line | None) -> None:
        if line is not None and line.epoch is not None and not (line.epochs and line.epoch > line.epochs):
            known = self.epoch[1] if self.epoch and line.epochs is None else line.epochs
            self.epoch = (line.epoch, known)

    def _take_keras(self, keras: re.Match, shown: Shown) -> None:
        """Only the last frame of an epoch counts:
        it alone has the values of the whole epoch, and those of the validation."""
        line = fields.read(keras["rest"])
        if keras["n"] != keras["of"] or line is None or not line.values:
            return
        if self._keras and (
            self._keras[0].of != int(keras["of"]) or len(self._keras[0].values) > len(line.values)
        ):
            self._end_keras()  # an evaluation, after the training
        line.form = "keras" if self._fresh_epoch else "keras evaluation"
        line.words = ""
        line.epoch, line.place, line.of = self._epoch if self._fresh_epoch else None, None, int(keras["of"])
        self._keras = (line, shown)

    def _end_keras(self) -> None:
        if self._keras:
            line, shown = self._keras
            self._keras, self._fresh_epoch = None, False
            self._add(line, shown)

    def _heading(self, text: str) -> None:
        """A line without a number may say whose numbers follow."""
        if _is_heading(text):
            self._split = words.split_of(text)

    def _context(self, line: Line, text: str) -> None:
        if line.epoch is not None:
            self._epoch, self._step, self._split, self._fresh_epoch = line.epoch, None, line.split, True
        if line.step is not None:
            self._step, self._split = line.step, line.split
        elif line.epoch is None and _is_heading(text):
            self._split = line.split

    def _add(self, line: Line, shown: Shown) -> None:
        if (line.epoch is not None and line.epoch != self._epoch) or (
            line.step is not None and line.step != self._step
        ):
            self._split = None
        values = line.values[:VALUES_MAX]
        if self._split and not any(v.split for v in values):
            values = [
                Value(v.name, v.value, v.unit, self._split if words.takes_split(v.name) else None)
                for v in values
            ]
        if not values:
            return
        # there a name may come later, or not each time
        each = [[v] for v in values] if line.form in ("bar", "block") else [values]
        for part in each:
            self._add_values(line, part, shown)
        if line.epoch is not None:
            self._epoch = line.epoch
        if line.step is not None:
            self._step = line.step

    def _add_values(self, line: Line, values: list[Value], shown: Shown) -> None:
        drawn = line.form == "bar" or shown.drawn
        key = (
            line.form,
            line.words,
            tuple((v.split, v.name) for v in values),
            line.epoch is not None,
            line.place is not None,
            line.step_name,
            line.of if line.form == "bar" and not line.words else None,
        )
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= KINDS_MAX:
                return
            kind = self._kinds[key] = Kind(values, drawn, shown.text.strip()[:200], line.form)
        kind.drawn = kind.drawn or drawn
        if len(kind.rows) < POINTS_MAX:
            self._add_row(kind, key, line, values, shown)

    def _add_row(self, kind: Kind, key: tuple, line: Line, values: list[Value], shown: Shown) -> None:
        turn, before = self._turns.get(key, (0, -1))
        if line.place is not None:
            turn += line.place < before
            self._turns[key] = (turn, line.place)
        place = axes.Place(
            line.step,
            line.step_name,
            line.epoch,
            line.place,
            line.of,
            line.first,
            self._epoch,
            self._step,
            turn,
        )
        row = tuple(v.value for v in values)
        somewhere = place.epoch is not None or place.step is not None or place.place is not None
        if somewhere and kind.rows and kind.places[-1] == place and _same(kind.rows[-1], row):
            return  # told twice
        kind.places.append(place)
        kind.rows.append(row)
        kind.offsets.append(shown.offset)
        kind.ranks.append(line.rank)

    # ---- series

    def series(self) -> list[Series]:
        """The reliable curves, in the order in which they began."""
        found = [each for kind in self._kinds.values() for each in _of_kind(kind)]
        return _named(found)

    def results(self) -> dict[str, tuple[float, str]]:
        """Values that were printed once, with their split, and their units: `Test accuracy: 91.2 %`."""
        found: dict[str, tuple[float, str]] = {}
        for kind in self._kinds.values():
            if len(kind.rows) == 1 and kind.form in ("text", "dict"):
                for name, value in zip(kind.names, kind.rows[0], strict=True):
                    if name.split and words.metric(name.name) and name.split != "train":
                        found[_whole_name(name)] = value, name.unit
        return found


def _is_heading(text: str) -> bool:
    said = [word.lower() for word in re.findall(r"[^\W\d]+", text)]
    return bool(words.split_of(text)) and all(word in words.SPLITS or word in _HEADING for word in said)


def _same(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a == b or all(x == y or (math.isnan(x) and math.isnan(y)) for x, y in zip(a, b, strict=True))


def _whole_name(value: Value) -> str:
    return f"{value.split}/{value.name}" if value.split else value.name


def _of_kind(kind: Kind) -> Iterator[tuple[Value, Series]]:
    lowest = min((rank for rank in kind.ranks if rank is not None), default=None)
    kept = [i for i, rank in enumerate(kind.ranks) if rank is None or rank == lowest]
    if len(kept) < 2:
        return
    axis = axes.choose([kind.places[i] for i in kept], kind.drawn)
    for column, value in enumerate(kind.names):
        for part in sorted(set(axis.part)):
            points: list[tuple[float, float, int]] = []
            for i, at, own in zip(kept, axis.at, axis.part, strict=True):
                if own != part:
                    continue
                point = (at, kind.rows[i][column], kind.offsets[i])
                if kind.drawn and points and points[-1][0] == at:
                    points[-1] = point
                elif not (kind.form == "bar" and points and (points[-1][1] == point[1])):
                    points.append(point)
            if _accepted(value, points, axis.name):
                yield (
                    value,
                    Series(
                        _whole_name(value),
                        axis.name,
                        value.unit,
                        kind.sample,
                        points,
                        kind.form == "bar",
                        axis.guessed,
                    ),
                )


def _accepted(value: Value, points: list[tuple[float, float, int]], axis: str) -> bool:
    values = [v for _, v, _ in points]
    constant = all(v == values[0] for v in values)
    whole = all(math.isfinite(v) and v == int(v) for v in values)
    known = words.metric(value.name)
    if len(points) < 2 or (constant and words.parameter(value.name)):
        return False
    if axis == "order":
        return len(points) >= 3 and (known or not (constant or whole))
    return known or not (constant and whole)


def _named(found: list[tuple[Value, Series]]) -> list[Series]:
    """Each name once: what has the name of an earlier one is a second of it."""
    order = sorted(range(len(found)), key=lambda i: (found[i][1].points[0][2], i))
    seen: dict[str, int] = {}
    for i in order:
        series = found[i][1]
        count = seen[series.name] = seen.get(series.name, 0) + 1
        if count > 1:
            series.name = f"{series.name} #{count}"
    return [found[i][1] for i in order]
