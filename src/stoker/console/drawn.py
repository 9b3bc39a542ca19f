"""What the pages draw: charts and tables out of the server's numbers, and the small curve of a list. Pure."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from html import escape

from stoker.base.units import from_iso
from stoker.console.lasts import main_curve
from stoker.console.words import figure, point, said, where

CHARTS = 12  # of a page that did not ask for all
CURVES_MAX = 60  # in one chart
METRICS = 4  # columns of a comparison
PARAMETERS = 12
SPARK_POINTS = 48
DIFF_LINES, LINE_MAX = 5000, 1000  # of a diff in a page
ENDED_BY_PLAN = ("stopped_by_user", "limit_time", "limit_idle", "limit_budget", "preempted")
NAME_MAX = 11  # characters
WIDE, HIGH, LINE = 120, 26, 14  # of a small curve and the line of text below it, in pixels


def charts(found: Sequence[dict], *, all_of_them: bool = False) -> dict:
    """`{"charts": [{"title", "axis", "curves":
    [{"label", "run", "name", "unit", "points"}]}], "more", "notes"}`:
    one chart for each metric and axis, training and validation together.
    A value that is not finite is null."""
    made: dict[tuple[str, str], dict] = {}
    ranks: dict[tuple[str, str], tuple] = {}
    for each in found:
        for curve in each["series"]:
            key = (curve["metric"], curve["axis"])
            if key not in made:
                made[key] = {
                    "title": curve["name"].removeprefix(f"{curve['split']}/"),
                    "axis": _axis(curve["axis"]),
                    "curves": [],
                }
                ranks[key] = (
                    curve["name"].endswith((".mean", ".2")),
                    curve["better"] is None,
                    "loss" not in curve["metric"],
                    len(ranks),
                )
            label = f"{each['run']['name']} {curve['name']}" if len(found) > 1 else curve["name"]
            if len(made[key]["curves"]) < CURVES_MAX:
                made[key]["curves"].append(
                    {
                        "label": label,
                        "run": each["run"]["id"],
                        "name": curve["name"],
                        "unit": curve["unit"],
                        "split": curve["split"],
                        "source": curve["source"],
                        "points": [_finite(told) for told in curve["points"]],
                    }
                )
    ordered = sorted(made, key=ranks.__getitem__)
    kept = ordered if all_of_them else ordered[:CHARTS]
    return {"charts": [made[key] for key in kept], "more": len(ordered) - len(kept),
            "notes": [f"{each['run']['name']}: {note}" for each in found for note in each["notes"]]}


def _axis(name: str) -> str:
    return "order of the lines" if name == "order" else "iteration" if name == "number at the begin" else name


def _finite(told: Sequence) -> list:
    return [told[0], told[1] if isinstance(told[1], int | float) and math.isfinite(told[1]) else None]


def usage(told: dict) -> dict:
    """Charts, as in `charts`, of how the attempts of a run used the machine, with a gap between two
    attempts."""
    lines: dict[tuple[str, str], list[list]] = {}
    for attempt in told["attempts"]:
        for place, told_at in enumerate(attempt["points"]):
            values = {("CPU", "%"): told_at["cpu_percent"], ("Memory", "bytes"): told_at["rss_bytes"]}
            for index, gpu in told_at["gpus"].items():
                values |= {
                    (f"GPU {index}", "%"): gpu["busy_percent"],
                    (f"GPU {index} memory", "bytes"): gpu["memory_bytes"],
                }
            for key, value in values.items():
                line = lines.setdefault(key, [])
                if place == 0 and line:
                    line.append([(line[-1][0] + told_at["at"]) / 2, None])
                line.append([told_at["at"], value])
    made: dict[str, dict] = {}
    for (name, unit), points in lines.items():
        title = (
            "GPU"
            if name.startswith("GPU") and unit == "%"
            else "GPU memory"
            if name.startswith("GPU")
            else name
        )
        chart = made.setdefault(title, {"title": title, "axis": "time", "time": True, "curves": []})
        chart["curves"].append({"label": name.removesuffix(" memory"), "run": "", "name": name, "unit": unit,
                                "source": "telemetry", "split": None, "points": points})
    return {"charts": list(made.values()), "more": 0, "notes": []}


def timeline(run: dict) -> list[dict]:
    """The attempts of a run on a line of length 100: `{"attempt", "x", "width", "state", "from"}`. `from`:
    the step at which an exact resume continued, 0 after a restart from scratch, None if not known."""
    attempts = [each for each in run["attempts_detail"] if each["started_at"]]
    if not attempts:
        return []
    spans = [
        (from_iso(each["started_at"]), from_iso(each["ended_at"]) if each["ended_at"] else time.time())
        for each in attempts
    ]
    left, right = spans[0][0], max(end for _, end in spans)
    scale = 100 / ((right - left) or 1)
    steps = {life["attempt"]: life.get("from") for life in (run.get("resume") or {}).get("lives") or ()}
    return [
        {
            "attempt": each["attempt"],
            "x": round((begin - left) * scale, 2),
            "width": round(max(0.3, (end - begin) * scale), 2),
            "state": _ending(each),
            "from": steps.get(each["attempt"]),
        }
        for each, (begin, end) in zip(attempts, spans, strict=True)
    ]


def _ending(attempt: dict) -> str:
    if not attempt["ended_at"]:
        return "running"
    return (
        "done"
        if attempt["reason"] == "exited"
        else "stopped"
        if attempt["reason"] in ENDED_BY_PLAN
        else "failed"
    )


def difference(text: str) -> tuple[list[tuple[str, str]], bool]:
    """(kind, line) of a diff, where kind is "add", "del", "hunk", "file" or "", and whether lines were
    left out."""
    lines = text.splitlines()
    return [(_kind(line), line[:LINE_MAX]) for line in lines[:DIFF_LINES]], len(lines) > DIFF_LINES


def _kind(line: str) -> str:
    if line.startswith(("diff --git", "+++", "---", "index ", "new file", "deleted file")):
        return "file"
    return {"+": "add", "-": "del", "@": "hunk"}.get(line[:1], "")


def table(found: dict, sort: str, names: Sequence[str]) -> dict:
    """`{"columns", "rows"}` of a comparison: parameters that differ, best and last value of each metric,
    steps per second where a run has them. Each row: `{"run", "cells"}`; the best value of a column is
    marked."""
    metrics = [name for name in names if name in found["metrics"]] or [
        name for name in found["metrics"] if not name.endswith((".mean", ".2"))][:METRICS]
    parameters = found["parameters"][:PARAMETERS]
    runs = found["runs"]
    if sort:
        runs = sorted(runs, key=lambda run: _order(run, sort))
    columns = [_column(name, "parameter", name) for name in parameters]
    for name in metrics:
        if any((run["metrics"].get(name) or {}).get("best") for run in runs):
            columns.append(_column(name, "best", name))
        columns.append(_column(name, "last"))
    rated = any(run.get("steps_s") for run in runs)
    if rated:
        columns.append(_column("steps/s", "rate"))
    winners = {name: _winner(runs, name) for name in metrics}
    rows = []
    for run in runs:
        cells = [_cell(run["parameters"].get(name, "")) for name in parameters]
        for name in metrics:
            told = run["metrics"].get(name) or {}
            unit = told.get("unit") or ""
            if _column(name, "best", name) in columns:
                best, axis = told.get("best"), told.get("axis")
                cells.append(
                    {
                        "text": point(best, unit, axis),
                        "value": point(best, unit),
                        "at": where(best, axis),
                        "best": winners[name] == run["id"],
                    }
                )
            cells.append({"text": point(told.get("last"), unit), "best": False})
        if rated:
            cells.append({"text": figure(run.get("steps_s")), "best": False})
        rows.append({"run": run, "cells": cells})
    return {"columns": columns, "rows": rows,
            "said": [verdict for name in metrics if (verdict := found["verdicts"].get(name))]}


def _column(name: str, kind: str, sort: str = "") -> dict:
    title = f"{name} {kind}" if kind in ("best", "last") else name
    return {"title": title, "name": name, "sort": sort, "kind": kind}


def _cell(value: object) -> dict:
    """A parameter; `word` if the text is one of ours."""
    return {"text": said(value), "word": isinstance(value, bool) or value is None, "best": False}


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
    """An SVG of the main curve of a run, with its last value if `named`; empty if the run has no curve."""
    curve = main_curve(list(series))
    points = (
        [(float(at), float(value)) for at, value, *_ in curve["points"] if math.isfinite(float(value))]
        if curve
        else []
    )
    body = ""
    if len(points) > 1:
        (left, right), (low, high) = ((min(axis), max(axis)) for axis in zip(*points, strict=True))
        way = " ".join(f"{1 + (x - left) / ((right - left) or 1) * (WIDE - 2):.1f},"
                       f"{1 + (1 - (y - low) / ((high - low) or 1)) * (HIGH - 2):.1f}" for x, y in points)
        body = f'<polyline points="{way}" fill="none" stroke="#3d8bd4" stroke-width="1.5"/>'
    if curve and body and named:
        name = curve["name"] if len(curve["name"]) <= NAME_MAX else f"{curve['name'][:NAME_MAX - 1]}…"
        body += (
            f'<text x="1" y="{HIGH + LINE - 3}" font-family="system-ui,sans-serif" font-size="11" '
            f'fill="#7a8794">{escape(name)} '
            f"{figure(curve['last'][1], curve['unit'])}</text>"
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH + LINE}" width="{WIDE}" '
        f'height="{HIGH + LINE}">{body}</svg>'
    ).encode("utf-8", "replace")
