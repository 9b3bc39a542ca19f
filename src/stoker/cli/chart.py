"""Curves as text in a terminal: braille dots, ticks at round numbers, the name of each curve at its end.
Pure but for the canvas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from stoker.cli import output

COLOURS = ("cyan", "yellow", "green", "magenta", "red", "blue", "white")
NAME_MAX = 28  # columns of a name beside its curve
ROWS = 14
LEAST = 20  # columns of the picture itself


@dataclass(slots=True)
class Curve:
    """label: the name of the curve in the chart. points: (position, value) pairs;
    non-finite values are allowed."""

    label: str
    points: list[tuple[float, float]]


@dataclass(slots=True)
class Chart:
    """One picture with curves."""

    title: str
    axis: str
    curves: list[Curve] = field(default_factory=list)


def limits(chart: Chart) -> tuple[float, float, float, float] | None:
    """Smallest and largest position and value; None if no value is finite."""
    seen = [point for curve in chart.curves for point in curve.points if all(map(_drawable, point))]
    if not seen:
        return None
    (x0, x1), (y0, y1) = ((min(p[i] for p in seen), max(p[i] for p in seen)) for i in (0, 1))
    if x0 == x1:
        x0, x1 = x0 - 0.5, x1 + 0.5
    if y0 == y1:
        margin = abs(y0) * 0.1 or 1.0
        y0, y1 = y0 - margin, y1 + margin
    return x0, x1, y0, y1


def _drawable(value: float) -> bool:
    return math.isfinite(value) and abs(value) < 1e300


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers within the range, at most this many."""
    rough = (high - low) / max(1, most)
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next(power * m for m in (1, 2, 2.5, 5, 10, 20) if power * m >= rough)
    first = math.ceil(low / step - 1e-9)
    return [(first + i) * step for i in range(most + 1) if (first + i) * step <= high + step * 1e-9]


def number(value: float) -> str:
    """The text of a tick: 0.25, 1,500, 1e-05."""
    if value and (abs(value) < 1e-3 or abs(value) >= 1e7):
        return f"{value:.3g}"
    text = f"{round(value, 6):,.6f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def draw(chart: Chart, columns: int, *, colour: bool, rows: int = ROWS) -> str:
    """The lines of the picture, this many columns wide."""
    area = limits(chart)
    title = f"{output.shown(chart.title)}"
    if area is None:
        return f"{title}: no value is finite"
    x0, x1, y0, y1 = area
    marks = ticks(y0, y1, 7)
    left = max(len(number(mark)) for mark in marks or [y0]) + 1
    names = _beside(chart, area, rows, min(NAME_MAX, columns - left - LEAST - 4))
    right = max((output.width(name) for name, _ in names.values()), default=0) + 1
    wide = max(LEAST, columns - left - right - 3)
    dots = _dots(chart, area, wide, rows, colour)
    by_row = {_row(mark, y0, y1, rows): number(mark) for mark in marks}
    lines = [" " * left + f" {title}"]
    for row in range(rows):
        name, at = names.get(row, ("", 0))
        told = f" {_coloured(name, at, colour)}" if name else ""
        lines.append(
            f"{by_row.get(row, ''):>{left}} {'┤' if row in by_row else '│'}{dots[row]}{told}".rstrip()
        )
    lines += _below((x0, x1), left, wide, columns, chart.axis)
    odd = sum(not _drawable(value) for curve in chart.curves for _, value in curve.points)
    if odd:
        lines.append(
            " " * (left + 2)
            + f"{odd:,} value{'s' if odd > 1 else ''} not drawn: nan, infinite or beyond 1e300"
        )
    return "\n".join(lines)


def _dots(
    chart: Chart, area: tuple[float, float, float, float], wide: int, rows: int, colour: bool
) -> list[str]:
    from plotille import Canvas

    x0, x1, y0, y1 = area
    canvas = Canvas(width=wide, height=rows, xmin=x0, xmax=x1, ymin=y0, ymax=y1, mode="names")
    for at, curve in enumerate(chart.curves):
        ink = COLOURS[at % len(COLOURS)] if colour else None
        before: tuple[float, float] | None = None
        for point in curve.points:
            if not all(map(_drawable, point)):
                before = None
                continue
            if before is None:
                canvas.point(*point, color=ink)
            else:
                canvas.line(*before, *point, color=ink)
            before = point
    return canvas.plot(linesep="\n").replace("\u2800", " ").split("\n")[-rows:]


def _beside(
    chart: Chart, area: tuple[float, float, float, float], rows: int, most: int
) -> dict[int, tuple[str, int]]:
    """Row -> the name of the curve that ends there;
    where two end in one row, the next free one below or above."""
    found: dict[int, tuple[str, int]] = {}
    for at, curve in enumerate(chart.curves):
        ends = [value for position, value in curve.points if _drawable(position) and _drawable(value)]
        if not ends:
            continue
        row = _row(ends[-1], area[2], area[3], rows)
        free = [r for r in range(rows) if r not in found]
        if not free:
            break
        row = min(free, key=lambda r: (abs(r - row), r))
        found[row] = (output.cut(output.shown(curve.label), most), at)
    return found


def _row(value: float, low: float, high: float, rows: int) -> int:
    return min(rows - 1, max(0, round((high - value) / (high - low) * (rows - 1))))


def _coloured(text: str, at: int, colour: bool) -> str:
    if not colour:
        return text
    from plotille import color

    return color(text, fg=COLOURS[at % len(COLOURS)], mode="names")


def _below(ends: tuple[float, float], left: int, wide: int, columns: int, axis: str) -> list[str]:
    """The axis, its ticks, and what it counts."""
    x0, x1 = ends
    marks, room = ticks(x0, x1, max(2, wide // 14)), max(8, columns - left - 4 - len(axis))
    line, told = ["─"] * wide, [" "] * room
    for mark in marks:
        at = min(wide - 1, max(0, round((mark - x0) / (x1 - x0) * (wide - 1))))
        line[at] = "┬"
        text = number(mark)
        begin = max(0, at - len(text) // 2)
        if begin + len(text) <= room and all(c == " " for c in told[max(0, begin - 1):begin + len(text) + 1]):
            told[begin:begin + len(text)] = text
    return [" " * (left + 1) + "└" + "".join(line), " " * (left + 2) + "".join(told).rstrip() + f"  {axis}"]


def of(label: str, points: Sequence[Sequence]) -> Curve:
    """Make a curve from the points of an answer: `[position, value, time]`, with "nan" for values that
    JSON cannot represent."""
    return Curve(label, [(float(point[0]), float(point[1])) for point in points])
