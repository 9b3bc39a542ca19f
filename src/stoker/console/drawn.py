"""What the pages draw: charts and tables out of the server's numbers, and the small curve of a list. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from stoker.console.source import main_curve
from stoker.console.words import figure, point, said

CHARTS = 12  # of a page that did not ask for all
CURVES_MAX = 60  # in one chart
METRICS = 4  # columns of a comparison
PARAMETERS = 12
SPARK_POINTS = 48
NAME_MAX = 11  # characters
WIDE, HIGH, LINE = 120, 26, 14  # of a small curve and the line of text below it, in pixels


def charts(found: Sequence[dict], *, all_of_them: bool = False) -> dict:
    """`{"charts": [{"title", "axis", "curves": [{"label", "run", "name", "unit", "points"}]}], "more", "notes"}`: one chart for each metric
    and axis, training and validation together. A value that is not finite is null."""
    made: dict[tuple[str, str], dict] = {}
    ranks: dict[tuple[str, str], tuple] = {}
    for each in found:
        for curve in each["series"]:
            key = (curve["metric"], curve["axis"])
            if key not in made:
                made[key] = {"title": curve["name"].removeprefix(f"{curve['split']}/"), "axis": _axis(curve["axis"]), "curves": []}
                ranks[key] = (curve["name"].endswith((".mean", ".2")), curve["better"] is None, "loss" not in curve["metric"], len(ranks))
            label = f"{each['run']['name']} {curve['name']}" if len(found) > 1 else curve["name"]
            if len(made[key]["curves"]) < CURVES_MAX:
                made[key]["curves"].append({"label": label, "run": each["run"]["id"], "name": curve["name"], "unit": curve["unit"],
                                            "source": curve["source"], "points": [_finite(told) for told in curve["points"]]})
    ordered = sorted(made, key=ranks.__getitem__)
    kept = ordered if all_of_them else ordered[:CHARTS]
    return {"charts": [made[key] for key in kept], "more": len(ordered) - len(kept),
            "notes": [f"{each['run']['name']}: {note}" for each in found for note in each["notes"]]}


def _axis(name: str) -> str:
    return "order of the lines" if name == "order" else "iteration" if name == "number at the begin" else name


def _finite(told: Sequence) -> list:
    return [told[0], told[1] if isinstance(told[1], int | float) and math.isfinite(told[1]) else None]


def table(found: dict, sort: str, names: Sequence[str]) -> dict:
    """`{"columns", "rows"}` of a comparison: parameters that differ, the best and the last of each metric, steps per second. Each row:
    `{"run", "cells"}`; the best value of a column is marked."""
    metrics = [name for name in names if name in found["metrics"]] or [
        name for name in found["metrics"] if not name.endswith((".mean", ".2"))][:METRICS]
    parameters = found["parameters"][:PARAMETERS]
    runs = found["runs"]
    if sort:
        runs = sorted(runs, key=lambda run: _order(run, sort))
    columns = [{"title": name, "sort": name, "kind": "parameter"} for name in parameters]
    for name in metrics:
        if any((run["metrics"].get(name) or {}).get("best") for run in runs):
            columns.append({"title": f"{name} best", "sort": name, "kind": "best"})
        columns.append({"title": f"{name} last", "sort": "", "kind": "last"})
    winners = {name: _winner(runs, name) for name in metrics}
    rows = []
    for run in runs:
        cells = [{"text": said(run["parameters"].get(name, "")), "best": False} for name in parameters]
        for name in metrics:
            told = run["metrics"].get(name) or {}
            unit = told.get("unit") or ""
            if {"title": f"{name} best", "sort": name, "kind": "best"} in columns:
                cells.append({"text": point(told.get("best"), unit, told.get("axis")), "best": winners[name] == run["id"]})
            cells.append({"text": point(told.get("last"), unit), "best": False})
        rows.append({"run": run, "cells": [*cells, {"text": figure(run.get("steps_s")), "best": False}]})
    return {"columns": [*columns, {"title": "steps/s", "sort": "", "kind": "rate"}], "rows": rows,
            "said": [verdict for name in metrics if (verdict := found["verdicts"].get(name))]}


def _value(run: dict, name: str) -> float | None:
    told = run["metrics"].get(name)
    at = told and (told["best"] or told["last"])
    value = float(at[1]) if at else math.nan
    return value if math.isfinite(value) else None


def _winner(runs: Sequence[dict], name: str) -> str | None:
    """The run with the best value; None where fewer than two have one, or nobody knows which is better."""
    ways = {(run["metrics"].get(name) or {}).get("better") for run in runs} - {None}
    known = [(value, run["id"]) for run in runs if (value := _value(run, name)) is not None]
    if len(ways) != 1 or len(known) < 2:
        return None
    return (max if ways == {"max"} else min)(known)[1]


def _order(run: dict, by: str) -> tuple:
    """Of a metric the best first, of a parameter the smallest; a run without it comes last."""
    if by in run["metrics"]:
        value = _value(run, by)
        return value is None, -(value or 0) if run["metrics"][by]["better"] == "max" else value or 0, ""
    told = run["parameters"].get(by)
    number = isinstance(told, int | float) and not isinstance(told, bool)
    return told is None, told if number else 0, "" if number else str(told)


def spark(series: Sequence[dict], *, named: bool = True) -> bytes:
    """An SVG of the curve that stands for a run, with its last value if `named`; empty where there is none."""
    curve = main_curve(list(series))
    points = [(float(at), float(value)) for at, value, *_ in curve["points"] if math.isfinite(float(value))] if curve else []
    body = ""
    if len(points) > 1:
        (left, right), (low, high) = ((min(axis), max(axis)) for axis in zip(*points, strict=True))
        way = " ".join(f"{1 + (x - left) / ((right - left) or 1) * (WIDE - 2):.1f},"
                       f"{1 + (1 - (y - low) / ((high - low) or 1)) * (HIGH - 2):.1f}" for x, y in points)
        body = f'<polyline points="{way}" fill="none" stroke="#3d8bd4" stroke-width="1.5"/>'
    if body and named:
        name = curve["name"] if len(curve["name"]) <= NAME_MAX else f"{curve['name'][:NAME_MAX - 1]}…"
        body += (f'<text x="1" y="{HIGH + LINE - 3}" font-family="system-ui,sans-serif" font-size="11" fill="#7a8794">{escape(name)} '
                 f'{figure(curve["last"][1], curve["unit"])}</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH + LINE}" width="{WIDE}" height="{HIGH + LINE}">{body}</svg>'
            ).encode("utf-8", "replace")
