"""Curves as one SVG, and as an HTML page that opens from disk: no script, nothing from the network."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from stoker.base.errors import InvalidSpec
from stoker.cli.chart import Chart, limits, number, ticks

if TYPE_CHECKING:
    import drawsvg

WIDTH, HEIGHT = 860, 340
LEFT, RIGHT, TOP, BOTTOM = 76, 200, 40, 48
INKS = ("#1668a8", "#d9480f", "#2b8a3e", "#862e9c", "#c92a2a", "#0b7285", "#495057")
NAME_MAX = 30
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>body{{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}}svg{{max-width:100%;height:auto}}
table{{border-collapse:collapse;display:block;overflow-x:auto}}td,th{{padding:.25rem .8rem .25rem 0;text-align:left;white-space:nowrap}}
td{{border-top:1px solid #ddd;font-variant-numeric:tabular-nums}}</style>
<h1>{title}</h1>
{body}
</html>
"""  # noqa: E501


def svg(charts: Sequence[Chart]) -> str:
    """All pictures in one SVG, one below the other."""
    import drawsvg

    drawn = [(chart, held) for chart in charts if (held := limits(chart))]
    picture = drawsvg.Drawing(WIDTH, max(1, len(drawn)) * HEIGHT, font_family="system-ui, sans-serif")
    picture.append(drawsvg.Rectangle(0, 0, WIDTH, max(1, len(drawn)) * HEIGHT, fill="white"))
    for i, (chart, held) in enumerate(drawn):
        _draw(picture, drawsvg, chart, held, i * HEIGHT)
    return picture.as_svg()


def _draw(
    picture: drawsvg.Drawing,
    draw: ModuleType,
    chart: Chart,
    held: tuple[float, float, float, float],
    top: int,
) -> None:
    x0, x1, y0, y1 = held
    right, floor = WIDTH - RIGHT, top + HEIGHT - BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        return round(LEFT + (x - x0) / (x1 - x0) * (right - LEFT), 2), round(
            floor - (y - y0) / (y1 - y0) * (floor - top - TOP), 2
        )

    picture.append(draw.Text(chart.title, 16, LEFT, top + 24, font_weight="600", fill="#212529"))
    for mark in ticks(y0, y1, 5):
        height = at(x0, mark)[1]
        picture.append(draw.Line(LEFT, height, right, height, stroke="#dee2e6"))
        picture.append(draw.Text(number(mark), 12, LEFT - 8, height + 4, text_anchor="end", fill="#495057"))
    for mark in ticks(x0, x1, 7):
        place = at(mark, y0)[0]
        picture.append(draw.Line(place, floor, place, floor + 5, stroke="#495057"))
        picture.append(draw.Text(number(mark), 12, place, floor + 18, text_anchor="middle", fill="#495057"))
    picture.append(draw.Line(LEFT, floor, right, floor, stroke="#495057"))
    picture.append(
        draw.Text(chart.axis, 12, (LEFT + right) / 2, floor + 36, text_anchor="middle", fill="#495057")
    )
    for i, curve in enumerate(chart.curves):
        ink = INKS[i % len(INKS)]
        for piece in _pieces(curve.points):
            if len(piece) == 1:
                picture.append(draw.Circle(*at(*piece[0]), 2.5, fill=ink))
            else:
                places = [at(*point) for point in piece]
                picture.append(
                    draw.Lines(
                        *(v for place in places for v in place),
                        fill="none",
                        stroke=ink,
                        stroke_width=1.8,
                        stroke_linejoin="round",
                    )
                )
        row = top + TOP + 8 + i * 20
        if row < floor:
            picture.append(draw.Line(right + 14, row, right + 34, row, stroke=ink, stroke_width=3))
            name = curve.label if len(curve.label) <= NAME_MAX else f"{curve.label[:NAME_MAX - 1]}…"
            picture.append(draw.Text(_printable(name), 12, right + 40, row + 4, fill="#212529"))


def _pieces(points: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Runs of finite points: a NaN is a gap."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if all(abs(value) < 1e300 for value in point):
            pieces[-1].append(point)
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _printable(text: str) -> str:
    """The text, with characters replaced that XML cannot contain."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text).encode("utf-8", "replace").decode()


def page(title: str, charts: Sequence[Chart], header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML page with the pictures and a table."""
    return document(title, [picture(charts), table(header, rows)])


def document(title: str, parts: Sequence[str]) -> str:
    """A complete HTML page from the parts that `picture`, `table`, `paragraphs` and `heading` return."""
    return _PAGE.format(title=_text(title), body="\n".join(parts))


def picture(charts: Sequence[Chart]) -> str:
    """The charts, as part of a page."""
    return svg(charts).partition("?>")[2] if charts else ""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, as part of a page; without a head row if the header is empty."""
    cells = [f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows]
    head = f"<tr>{''.join(f'<th>{_text(cell)}</th>' for cell in header)}</tr>\n" if any(header) else ""
    return f"<table>{head}{chr(10).join(cells)}\n</table>"


def paragraphs(lines: Sequence[str]) -> str:
    """Sentences, as part of a page."""
    return "".join(f"<p>{_text(line)}</p>\n" for line in lines)


def heading(text: str) -> str:
    """A heading, as part of a page."""
    return f"<h2>{_text(text)}</h2>"


def _text(text: str) -> str:
    return html.escape(_printable(text))


def write(path: str, text: str) -> None:
    """Write the file. Raises InvalidSpec if it cannot be written."""
    try:
        Path(path).write_text(text, "utf-8")
    except OSError as e:
        raise InvalidSpec(f"{path} cannot be written: {e.strerror or e}.") from e
