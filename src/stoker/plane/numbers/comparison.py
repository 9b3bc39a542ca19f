"""Several runs side by side: what they were asked, what came of it, and whether a difference is larger than
the spread. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from stoker.plane.numbers import parameters, words
from stoker.plane.numbers.curves import Curve, told
from stoker.plane.numbers.reader import Numbers


def asked(command: Sequence[str], numbers: Numbers) -> dict[str, object]:
    """Parameters of a run. Parameters that a library or a parser reported take priority over the words of
    the command line: a parser of the whole command line knows that `-e 5` means `epochs`."""
    found = {} if numbers.parameters.keys() & parameters.PARSERS else parameters.of_command(command)
    for told_ in numbers.parameters.values():
        found |= parameters.kept(told_)
    return found


def metrics(
    curves: Sequence[Curve], results: Mapping[str, float], units: Mapping[str, str]
) -> dict[str, dict]:
    """Name -> `{"last", "best", "better", "source", "axis", "unit", "count", "metric"}`. Best and last are
    `[position, value]`; no best if it is not known whether small or large values are better.
    units: of results."""
    found: dict[str, dict] = {}
    for curve in curves:
        if curve.name in found:
            continue
        facts, better = curve.facts(), words.better(curve.name)
        found[curve.name] = {
            "last": facts["last"],
            "best": facts[better] if better else None,
            "better": better,
            "source": curve.source,
            "axis": curve.axis,
            "unit": curve.unit,
            "count": facts["count"],
            "metric": words.key(curve.name)[1],
        }
    for name, value in results.items():
        if name not in found:
            point = [None, told(value)]
            found[name] = {
                "last": point,
                "best": point,
                "better": words.better(name),
                "source": "printed once",
                "axis": None,
                "unit": units.get(name, ""),
                "count": 1,
                "metric": words.key(name)[1],
            }
    return found


def compare(runs: Sequence[dict]) -> dict:
    """runs: `{"name", "parameters", "metrics", "code", "environment", ...}`. Adds the differences, and the
    groups of repetitions."""
    names = list(dict.fromkeys(name for run in runs for name in run["parameters"]))
    differ = [name for name in names if len({_plain(run["parameters"].get(name)) for run in runs}) > 1]
    environments = {name: [run["environment"].get(name) for run in runs]
                    for name in dict.fromkeys(name for run in runs for name in run["environment"])}
    seen = list(dict.fromkeys(name for run in runs for name in run["metrics"]))
    repeated = groups(runs, [name for name in differ if not parameters.seed(name)])
    return {
        "runs": list(runs),
        "parameters": differ,
        "metrics": sorted(seen, key=lambda name: (rank(name), seen.index(name))),
        "groups": repeated,
        "verdicts": {name: said for name in seen if (said := verdict(repeated, name))},
        "environment": {
            name: values
            for name, values in environments.items()
            if len({_plain(value) for value in values}) > 1
        },
        "commits": {run["id"]: _commit(run) for run in runs}
        if len({_commit(run) for run in runs}) > 1
        else {},
    }


def _commit(run: dict) -> str | None:
    code = run.get("code") or {}
    commit = code.get("commit")
    return f"{commit[:12]}{' with changes' if code.get('dirty') else ''}" if isinstance(commit, str) else None


def _plain(value: object) -> str:
    return (
        repr(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else repr(value)
    )


def rank(name: str) -> int:
    """Sort key for metrics: validation before training, known metrics before others."""
    split = words.key(name)[0]
    return (0 if split in ("val", "eval", "dev", "test") else 1 if split is None else 2) + (
        0 if words.better(name) else 3
    )


def groups(runs: Sequence[dict], by: Sequence[str]) -> list[dict]:
    """Groups of runs whose parameters differ only in the seed, with mean and spread (standard deviation)
    of the best value of each metric. Empty if no two runs form a group."""
    found: dict[tuple, list[dict]] = {}
    for run in runs:
        found.setdefault(tuple(_plain(run["parameters"].get(name)) for name in by), []).append(run)
    if all(len(members) == 1 for members in found.values()):
        return []
    return [
        {
            "runs": [run["name"] for run in members],
            "parameters": {name: members[0]["parameters"].get(name) for name in by},
            "metrics": _means(members),
        }
        for members in found.values()
    ]


def _means(members: Sequence[dict]) -> dict[str, dict]:
    means = {}
    for name in dict.fromkeys(name for run in members for name in run["metrics"]):
        values = [value for run in members if (value := _value(run, name)) is not None]
        if len(values) == len(members):
            means[name] = {
                "mean": statistics.fmean(values),
                "spread": statistics.stdev(values) if len(values) > 1 else None,
                "n": len(values),
                "better": members[0]["metrics"][name]["better"],
            }
    return means


def _value(run: dict, name: str) -> float | None:
    """The best of a metric, else the last; None where it is not finite."""
    metric = run["metrics"].get(name)
    point = metric and (metric["best"] or metric["last"])
    return float(point[1]) if point and math.isfinite(float(point[1])) else None


def verdict(found: Sequence[dict], metric: str) -> str | None:
    """One sentence about the two best groups of a metric; None if there is nothing to compare."""
    known = [(group, group["metrics"][metric]) for group in found if metric in group["metrics"]]
    if len(known) < 2 or known[0][1]["better"] is None:
        return None
    known.sort(key=lambda each: each[1]["mean"], reverse=known[0][1]["better"] == "max")
    (first, a), (second, b) = known[:2]
    gap, spreads = (
        abs(a["mean"] - b["mean"]),
        [each["spread"] for each in (a, b) if each["spread"] is not None],
    )
    pair = f"{_said(first)} ({metric} {a['mean']:.4g}) and {_said(second)} ({b['mean']:.4g})"
    if not spreads:
        return (
            f"{pair}: there is only one run of each. To see the spread between seeds, repeat each run with "
            "other seeds."
        )
    if gap <= max(spreads):
        return (
            f"{pair}: neither is better; the difference of {gap:.2g} is within the spread of "
            f"{max(spreads):.2g} between seeds."
        )
    return (
        f"{_said(first)} is better than {_said(second)} in {metric}: "
        f"{a['mean']:.4g} against {b['mean']:.4g}, with a spread of {max(spreads):.2g} between seeds."
    )


def _said(group: dict) -> str:
    return ", ".join(f"{name} {value}" for name, value in group["parameters"].items()) or " and ".join(
        group["runs"][:2]
    )
