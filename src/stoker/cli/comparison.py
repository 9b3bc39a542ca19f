"""The table of `stoker compare`, and what it says below it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from stoker.base.errors import NotFound
from stoker.cli import chart, output
from stoker.cli.figures import figure

VALUE_MAX = 24  # columns of a parameter
PARAMETERS_MAX = 8  # columns of parameters; --csv has all


def sort(found: dict, by: str | None) -> None:
    """Sort the runs: best value of a metric first, or smallest value of a parameter. Raises NotFound."""
    if by is None:
        return
    runs, metric = found["runs"], metric_named(found, by)
    if metric is not None:
        highest = any((run["metrics"].get(metric) or {}).get("better") == "max" for run in runs)
        runs.sort(key=lambda run: _key(_value(run, metric), highest))
    elif by in {name for run in runs for name in run["parameters"]}:
        runs.sort(
            key=lambda run: (
                not isinstance(run["parameters"].get(by), int | float),
                str(type(run["parameters"].get(by))),
                run["parameters"].get(by) if isinstance(run["parameters"].get(by), int | float) else 0,
                str(run["parameters"].get(by)),
            )
        )
    else:
        known = ", ".join([*found["metrics"][:6], *found["parameters"][:6]])
        raise NotFound(
            f"The runs have no metric and no parameter '{by}'.",
            hint=f"Metrics and parameters: {known or 'none'}.",
        )


def metric_named(found: dict, name: str) -> str | None:
    """The metric that a user means by `name`; None if `name` is no metric."""
    if name in found["metrics"]:
        return name
    bare = {each: told["metric"] for run in found["runs"] for each, told in run["metrics"].items()}
    near = [each for each in found["metrics"] if _plain(each) == _plain(name)] or [
        # `accuracy` is `val/accuracy` before `train/accuracy`
        each for each in found["metrics"] if _plain(bare[each]) == _plain(name)]
    return near[0] if near else None


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def _value(run: dict, metric: str) -> float | None:
    told = run["metrics"].get(metric)
    point = told and (told["best"] or told["last"])
    return float(point[1]) if point else None


def _key(value: float | None, highest: bool) -> tuple[bool, float]:
    if value is None or value != value:  # noqa: PLR0124  # NaN comes last
        return True, 0.0
    return False, -value if highest else value


def pick(found: dict, names: Sequence[str], most: int) -> list[str]:
    """The metrics of the table. Raises NotFound for a metric that no run has."""
    if not names:
        return [name for name in found["metrics"] if not name.endswith((".mean", ".2"))][:most]
    picked = []
    for name in names:
        metric = metric_named(found, name)
        if metric is None:
            raise NotFound(
                f"The runs have no metric '{name}'.",
                hint=f"Metrics: {', '.join(found['metrics'][:10]) or 'none'}.",
            )
        picked.append(metric)
    return picked


def table(found: dict, metrics: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """RUN | parameters that differ | best (step) and last value of each metric | steps/s."""
    runs, parameters = found["runs"], found["parameters"][:PARAMETERS_MAX]
    header = ["RUN", "STATE", *parameters]
    for name in metrics:
        known = any((run["metrics"].get(name) or {}).get("best") for run in runs)
        header += [f"{name} best", f"{name} last"] if known else [f"{name} last"]
    rows = []
    for run in runs:
        row = [
            run["name"],
            run["state"],
            *(output.cut(_said(run["parameters"].get(name, "")), VALUE_MAX) for name in parameters),
        ]
        for name in metrics:
            told = run["metrics"].get(name) or {}
            if f"{name} best" in header:
                row.append(_point(told.get("best"), told.get("unit") or "", told.get("axis")))
            row.append(_point(told.get("last"), told.get("unit") or "", None))
        rows.append([*row, f"{run['steps_s']:.3g}" if run.get("steps_s") else "", _tags(run, runs),
                     output.cut(run.get("note") or "", VALUE_MAX)])
    if all(run["state"] == runs[0]["state"] for run in runs):
        header, rows = [header[0], *header[2:]], [[row[0], *row[2:]] for row in rows]
    return [*header, "STEPS/S", "TAGS", "NOTE"], rows


def _tags(run: dict, runs: Sequence[dict]) -> str:
    """The tags that not all runs have."""
    common = set.intersection(*(set(each.get("tags") or ()) for each in runs)) if len(runs) > 1 else set()
    return output.cut(", ".join(tag for tag in run.get("tags") or () if tag not in common), VALUE_MAX)


def show_code(found: dict) -> None:
    """Print the differences in the code of two runs on stdout, and files without recorded content on
    stderr."""
    first, second = (run["name"] for run in found["runs"])
    told = found["code_diff"]
    for note in told["notes"]:
        output.say(note)
    for each in told["files"]:
        if each["diff"] is None:
            output.say(f"{output.shown(each['path'])}: {each['change']}; Stoker did not record its content")
            continue
        for line in each["diff"].removesuffix("\n").split("\n"):
            print(_for_terminal(line) if output.is_terminal(sys.stdout) else line)
    if not told["files"] and not told["notes"]:
        output.say(f"The code of {output.shown(first)} and {output.shown(second)} is the same.")


def _for_terminal(line: str) -> str:
    colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
    return click.style("\t".join(map(output.shown, line.split("\t"))), fg=colour)


def _said(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _point(point: list | None, unit: str, axis: str | None) -> str:
    if not point:
        return ""
    where = (
        f" ({axis} {chart.number(float(point[0]))})"
        if axis in ("step", "epoch", "count") and point[0] is not None
        else ""
    )
    return figure(point[1], unit) + where


def everything(found: dict) -> tuple[list[str], list[list]]:
    """All parameters and metrics, one row per run."""
    names = list(dict.fromkeys(name for run in found["runs"] for name in run["parameters"]))
    header = ["run", "id", "state", "tags", "note", *names]
    for name in found["metrics"]:
        header += [f"{name} best", f"{name} best at", f"{name} last", f"{name} last at"]
    rows = []
    for run in found["runs"]:
        tags, note = ", ".join(run.get("tags") or ()), run.get("note") or ""
        row = [
            run["name"],
            run["id"],
            run["state"],
            tags,
            note,
            *(run["parameters"].get(name, "") for name in names),
        ]
        for name in found["metrics"]:
            told = run["metrics"].get(name) or {}
            for kind in ("best", "last"):
                point = told.get(kind) or [None, None]
                row += ["" if point[1] is None else point[1], "" if point[0] is None else point[0]]
        rows.append([*row, run.get("steps_s") or ""])
    return [*header, "steps/s"], rows


def show(found: dict, header: list[str], rows: list[list[str]], metric: str | None) -> None:
    """Print the table and the sentences on stdout."""
    kept, cells = output.without_empty(header, rows)
    print(
        "\n".join(
            output.columns(
                [output.shown(name) for name in kept], [[output.shown(cell) for cell in row] for row in cells]
            )
        )
    )
    said = list(sentences(found, metric))
    if said:
        print()
        print("\n".join(output.shown(line) for line in said))


def sentences(found: dict, metric: str | None) -> list[str]:
    """Sentences about groups of seeds, then about other differences than parameters."""
    said = []
    chosen = metric_named(found, metric) if metric else None
    judged = (
        name
        for name in found["metrics"]
        if any((run["metrics"].get(name) or {}).get("better") for run in found["runs"])
    )
    chosen = chosen or next(judged, None)
    for group in found["groups"]:
        told = group["metrics"].get(chosen) if chosen else None
        if told:
            names = ", ".join(
                f"{name} {_said(value)}" for name, value in group["parameters"].items()
            ) or ", ".join(group["runs"])
            spread = (
                f" ± {told['spread']:.2g} (spread of {told['n']} runs)"
                if told["spread"] is not None
                else " (one run)"
            )
            said.append(f"{names}: {chosen} {told['mean']:.4g}{spread}")
    verdict = (found.get("verdicts") or {}).get(chosen or "")
    if verdict:
        said.append(verdict)
    if found["commits"]:
        commits = (f"{run['name']} {found['commits'].get(run['id']) or 'none'}" for run in found["runs"])
        said.append("git commit: " + ", ".join(commits))
    for name, values in found["environment"].items():
        said.append(
            f"{name}: "
            + " against ".join(dict.fromkeys(str(value) if value else "unknown" for value in values))
        )
    if len(found["parameters"]) > PARAMETERS_MAX:
        said.append(
            f"{len(found['parameters']) - PARAMETERS_MAX} more parameters differ. To list them: --csv or "
            "--json"
        )
    return said

