"""The picture of a report: a step now, after, and at its floor as stacked bars;
the loader's curve over workers against the compute line.

`svg` for a file, `terminal` for a screen. Both draw only what the findings hold;
what was not measured is not in the picture.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from stoker.base.parts import WORDS
from stoker.tune.findings import Curve, Findings
from stoker.tune.report import number

if TYPE_CHECKING:
    import drawsvg

COLOURS = {  # after Okabe and Ito: told apart by eyes that see few colours
    "data": "#D55E00",
    "start": "#E69F00",
    "transfer": "#F0E442",
    "forward": "#0072B2",
    "backward": "#56B4E9",
    "optimizer": "#009E73",
    "save": "#CC79A7",
    "log": "#999999",
    "evaluation": "#7A5195",
    "other": "#C8C8C8",
}
TERMINAL = {
    "data": "red",
    "start": "yellow",
    "transfer": "bright_yellow",
    "forward": "blue",
    "backward": "cyan",
    "optimizer": "green",
    "save": "magenta",
    "log": "bright_black",
    "evaluation": "bright_magenta",
    "other": "white",
}
_INK, _FAINT, _GRID = "#222222", "#666666", "#DDDDDD"
_WIDTH, _HEIGHT, _TOP, _BOTTOM = 960, 430, 74, 366
_BARS = (64, 330)  # x from, to
_CURVE = (470, 930)
_FONT = "system-ui, 'DejaVu Sans', Arial, sans-serif"

Bar = tuple[str, dict[str, float]]  # title, ms by kind


def bars(found: Findings) -> list[Bar]:
    """now, after, floor; a bar that would repeat the one before is left out."""
    in_step = [s for s in found.stages if s.name != "evaluation"]
    now = {s.name: s.now_ms for s in in_step}
    if not now:
        return []
    shown: list[Bar] = [("now", now)]
    after = {s.name: s.after_ms if s.after_ms is not None else s.now_ms for s in in_step}
    if sum(after.values()) < 0.97 * sum(now.values()):
        shown.append(("after", after))
    if found.floor_ms is not None:
        rest = {k: v for k, v in now.items() if k not in ("data", "start", "transfer")}
        scale = found.floor_ms / sum(rest.values()) if rest else 1.0
        shown.append(("floor", {k: v * scale for k, v in rest.items()}))
    return shown


# --- SVG
# ------------------------------------------------------------------------------------------------------------

def svg(found: Findings, title: str = "") -> str:
    """A whole SVG document, without scripts; 960 x 430, half as wide where nothing is known of a loader."""
    import drawsvg as draw

    wide = _WIDTH if found.curve.line or found.curve.dots or not found.stages else _CURVE[0]
    picture = draw.Drawing(wide, _HEIGHT, font_family=_FONT)
    picture.append(draw.Rectangle(0, 0, wide, _HEIGHT, fill="white"))
    title = title or "Where the time of a training step goes"
    picture.append(draw.Text(title, 17, 24, 30, fill=_INK, font_weight="bold"))
    shown = bars(found)
    if shown:
        _draw_bars(picture, draw, shown)
    if found.curve.line or found.curve.dots:
        _draw_curve(picture, draw, found.curve)
    if not shown and not found.curve.dots:
        picture.append(draw.Text(found.verdict[:110], 14, 24, 80, fill=_INK))
    return picture.as_svg()


def _draw_bars(picture: drawsvg.Drawing, draw: type[drawsvg], shown: list[Bar]) -> None:
    top = nice(1.04 * max(sum(kinds.values()) for _, kinds in shown))
    left, right = _BARS
    for i in range(5):
        value = top * i / 4
        y = _BOTTOM - (_BOTTOM - _TOP) * i / 4
        picture.append(draw.Line(left, y, right, y, stroke=_GRID))
        picture.append(draw.Text(tick(value), 11, left - 6, y + 4, text_anchor="end", fill=_FAINT))
    picture.append(draw.Text("ms a step", 11, left - 40, _TOP - 14, fill=_FAINT))
    slot = (right - left) / len(shown)
    for i, (name, kinds) in enumerate(shown):
        x, wide = left + slot * (i + 0.2), slot * 0.6
        y = float(_BOTTOM)
        for kind, ms in kinds.items():
            tall = (_BOTTOM - _TOP) * ms / top
            y -= tall
            box = draw.Rectangle(
                x, y, wide, tall, fill=COLOURS.get(kind, "#C8C8C8"), stroke="white", stroke_width=0.7
            )
            box.append_title(f"{WORDS.get(kind, kind)}: {number(ms)} ms")
            picture.append(box)
        picture.append(
            draw.Text(
                number(sum(kinds.values())),
                13,
                x + wide / 2,
                y - 6,
                text_anchor="middle",
                fill=_INK,
                font_weight="bold",
            )
        )
        picture.append(draw.Text(name, 12, x + wide / 2, _BOTTOM + 18, text_anchor="middle", fill=_INK))
    _legend(picture, draw, shown)


def _legend(picture: drawsvg.Drawing, draw: type[drawsvg], shown: list[Bar]) -> None:
    whole = sum(shown[0][1].values())
    kinds = [k for k, ms in shown[0][1].items() if ms >= 0.01 * whole]
    for i, kind in enumerate(kinds):
        x, y = 24 + (i % 3) * 142, _BOTTOM + 36 + (i // 3) * 15
        picture.append(draw.Rectangle(x, y - 9, 10, 10, fill=COLOURS.get(kind, "#C8C8C8")))
        picture.append(draw.Text(WORDS.get(kind, kind), 10.5, x + 14, y, fill=_INK))


def _draw_curve(picture: drawsvg.Drawing, draw: type[drawsvg], curve: Curve) -> None:
    left, right = _CURVE
    most = last_worker(curve)
    rates = [r for n, r in (*curve.line, *curve.dots) if n <= most] + (
        [curve.compute] if curve.compute else []
    )
    top = nice(max(rates))

    def x(n: float) -> float:
        return left + (right - left) * n / most

    def y(rate: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * rate / top

    for i in range(5):
        value = top * i / 4
        picture.append(draw.Line(left, y(value), right, y(value), stroke=_GRID))
        picture.append(draw.Text(tick(value), 11, left - 6, y(value) + 4, text_anchor="end", fill=_FAINT))
    for n in steps(most):
        picture.append(draw.Text(str(n), 11, x(n), _BOTTOM + 16, text_anchor="middle", fill=_FAINT))
    picture.append(draw.Text("samples per second, loader only", 11, left - 40, _TOP - 14, fill=_FAINT))
    picture.append(
        draw.Text("workers", 11, (left + right) / 2, _BOTTOM + 34, text_anchor="middle", fill=_FAINT)
    )
    if curve.breaks_at is not None and curve.breaks_at <= most:
        wide = right - x(curve.breaks_at)
        picture.append(
            draw.Rectangle(x(curve.breaks_at), _TOP, wide, _BOTTOM - _TOP, fill="#D55E00", fill_opacity=0.15)
        )
        picture.append(
            draw.Text(curve.breaks_why, 11, right - 6, _TOP + 16, text_anchor="end", fill="#A04000")
        )
    if curve.cores and curve.cores <= most:
        picture.append(
            draw.Line(x(curve.cores), _TOP, x(curve.cores), _BOTTOM, stroke=_FAINT, stroke_dasharray="2 3")
        )
        picture.append(draw.Text(f"{curve.cores:g} cores", 11, x(curve.cores) + 4, _BOTTOM - 6, fill=_FAINT))
    if curve.compute:
        at = y(curve.compute)
        picture.append(
            draw.Line(left, at, right, at, stroke="#0072B2", stroke_width=1.5, stroke_dasharray="6 4")
        )
        picture.append(
            draw.Text("needed by the training", 11, right - 4, at - 5, text_anchor="end", fill="#0072B2")
        )
    inside = [(n, r) for n, r in curve.line if n <= most]
    if inside:
        path = draw.Path(stroke="#D55E00", stroke_width=2, fill="none")
        path.M(x(inside[0][0]), y(inside[0][1]))
        for n, rate in inside[1:]:
            path.L(x(n), y(rate))
        picture.append(path)
    for n, rate in curve.dots:
        if n <= most:
            picture.append(draw.Circle(x(n), y(rate), 4, fill="#D55E00", stroke="white"))
    for n, word, rate in marks(curve):
        end = n > most / 2
        picture.append(draw.Circle(x(n), y(rate), 8, fill="none", stroke=_INK, stroke_width=1.5))
        picture.append(
            draw.Text(
                word,
                12,
                x(n) + (-12 if end else 12),
                y(rate) + 16,
                fill=_INK,
                font_weight="bold",
                text_anchor="end" if end else "start",
            )
        )


def marks(curve: Curve) -> list[tuple[int, str, float]]:
    """(workers, word, samples/s) of what is set and what is advised."""
    known = dict(curve.line) | dict(curve.dots)
    wanted = [(curve.now, "now")]
    if curve.advised is not None and curve.advised != curve.now:
        wanted.append((curve.advised, "advised"))
    return [(n, word, known[n]) for n, word in wanted if n in known and n <= last_worker(curve)]


# --- the terminal
# ------------------------------------------------------------------------------------------------------------

def terminal(found: Findings, width: int = 80, colour: bool = False) -> str:
    """The same in characters: bars of blocks, and the curve as rows of dots.
    Letters stand for the kinds where there is no colour."""
    from io import StringIO

    from rich.console import Console
    from rich.text import Text

    out = StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=colour,
        no_color=not colour,
        highlight=False,
        markup=False,
        color_system="standard" if colour else None,
        legacy_windows=False,
    )
    shown = bars(found)
    room = max(16, min(width, 130) - 24)
    whole = max((sum(kinds.values()) for _, kinds in shown), default=0)
    for name, kinds in shown:
        line = Text(f"{name:<6}")
        for kind, cells in blocks(kinds, whole, room):
            line.append((_letter(kind) if not colour else "█") * cells, style=TERMINAL.get(kind, ""))
        line.append(f" {number(sum(kinds.values()))} ms")
        console.print(line)
    legend = Text(" " * 6)
    for kind, ms in shown[0][1].items() if shown else ():
        if ms >= 0.01 * whole:
            words = WORDS.get(kind, kind)
            if legend.cell_len + len(words) + 2 > width:  # never within an entry
                console.print(legend)
                legend = Text(" " * 6)
            legend.append(f"{_letter(kind) if not colour else '█'} ", style=TERMINAL.get(kind, ""))
            legend.append(f"{words}  ")
    if shown:
        legend.rstrip()
        console.print(legend)
    if found.curve.dots or found.curve.line:
        console.print()
        for row in _rows(found.curve, min(width, 130)):
            console.print(row[:width], soft_wrap=True)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _rows(curve: Curve, width: int) -> list[str]:
    known = {n: r for n, r in curve.line if n <= last_worker(curve)}
    measured = dict(curve.dots)
    known |= measured
    notes = {n: _notes(curve, n, rate) for n, rate in known.items()}
    room = max(12, width - 9 - max(map(len, notes.values())))
    top = max([*known.values(), curve.compute or 0])
    at = None if not curve.compute else round(room * curve.compute / top)
    key = ["● measured", "○ model", *(["│ needed by the training"] if at is not None else [])]
    rows = ["workers  samples per second, loader only", " " * 7 + "  ".join(key)]
    for n, rate in sorted(known.items()):
        line = list(" " * (room + 1))
        if at is not None:
            line[at] = "│"
        line[round(room * rate / top)] = "●" if n in measured else "○"
        rows.append(f"{n:>5}  {''.join(line)} {notes[n]}")
    return rows


def _notes(curve: Curve, n: int, rate: float) -> str:
    breaks = curve.breaks_at is not None and n >= curve.breaks_at
    notes = [
        tick(rate),
        "now" if n == curve.now else "",
        "advised" if n == curve.advised and n != curve.now else "",
        "cores" if curve.cores and n == round(curve.cores) else "",
        curve.breaks_why if breaks else "",
    ]
    return " ".join(filter(None, notes))


def blocks(kinds: dict[str, float], whole: float, room: int) -> list[tuple[str, int]]:
    """Cells of each kind, their sum rounded once so that bars of one length are of one length."""
    found, used, total = [], 0, 0.0
    for kind, ms in kinds.items():
        total += ms
        cells = round(room * total / whole) - used if whole else 0
        used += cells
        found.append((kind, cells))
    return [(k, c) for k, c in found if c]


def _letter(kind: str) -> str:
    return {
        "data": "d",
        "start": "w",
        "transfer": "t",
        "forward": "f",
        "backward": "b",
        "optimizer": "o",
        "save": "s",
        "log": "p",
        "evaluation": "e",
        "other": ".",
    }.get(kind, "?")


# --- scales
# ------------------------------------------------------------------------------------------------------------

def nice(value: float) -> float:
    """The next of 1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((m * power for m in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8) if m * power >= value), 10 * power)


def tick(value: float) -> str:
    """A number of an axis, short."""
    if value >= 1e6:
        return f"{value / 1e6:.3g}M"
    return f"{value / 1e3:.3g}k" if value >= 1e4 else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def steps(most: int) -> list[int]:
    """Numbers of workers to write at the axis: at most nine."""
    by = next((s for s in (1, 2, 4, 5, 8, 10, 16, 20) if most / s <= 8), math.ceil(most / 8))
    return list(range(0, most + 1, by))


def last_worker(curve: Curve) -> int:
    """How far to the right the curve goes: past the cores, what is set, what was measured,
    and a limit that is near."""
    most = max([4, curve.now, curve.advised or 0, *(n for n, _ in curve.dots), 2 * round(curve.cores or 1)])
    if curve.breaks_at is not None and curve.breaks_at <= 2 * most:
        most = max(most, math.ceil(1.25 * curve.breaks_at))
    return min(most, 64)
