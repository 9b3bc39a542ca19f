"""Curves as one PNG. The package matplotlib is optional, and is imported here only."""

from __future__ import annotations

import math
from collections.abc import Sequence

from stoker.base.errors import InvalidSpec
from stoker.cli import output
from stoker.cli.chart import Chart, limits
from stoker.cli.vector import INKS

WIDE, HIGH = 8.6, 3.4  # inches of one chart
DPI = 150


def write(path: str, charts: Sequence[Chart]) -> None:
    """Write all charts into one picture, one below the other. Raises InvalidSpec without matplotlib, or if
    the file cannot be written."""
    try:
        from matplotlib.figure import Figure
    except ImportError as e:
        raise InvalidSpec(
            f"matplotlib cannot be imported ({e}).", hint="Install it: pip install 'stoker[png]'"
        ) from None
    drawn = [chart for chart in charts if limits(chart)]
    figure = Figure((WIDE, HIGH * max(1, len(drawn))), layout="constrained")
    for chart, axes in zip(drawn, figure.subplots(max(1, len(drawn)), squeeze=False)[:, 0], strict=False):
        for i, curve in enumerate(chart.curves):
            at = [x for x, _ in curve.points]
            values = [y if math.isfinite(y) and abs(y) < 1e300 else math.nan for _, y in curve.points]
            axes.plot(
                at,
                values,
                color=INKS[i % len(INKS)],
                label=_plain(curve.label),
                marker="o" if len(at) == 1 else "",
            )
        axes.set_title(_plain(chart.title), loc="left")
        axes.set_xlabel(_plain(chart.axis))
        axes.grid(alpha=0.3)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    try:
        figure.savefig(path, format="png", dpi=DPI)
    except OSError as e:
        raise InvalidSpec(f"{output.shown(path)} cannot be written: {e.strerror or e}.") from e


def _plain(text: str) -> str:
    """A text that matplotlib reads neither as mathematics nor as a label to hide."""
    return f" {output.shown(text)}".replace("$", r"\$")
