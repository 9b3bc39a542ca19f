"""`stoker export`: the numbers of runs as files that other programs open."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import click

from stoker.base.errors import InvalidSpec, NotFound
from stoker.cli import comparison, output
from stoker.cli.event_files import Events
from stoker.cli.numbers import (
    POINT_COLUMNS,
    POINTS_MAX,
    SHOWN_POINTS,
    charts_of,
    csv_text,
    curves_of,
    point_rows,
)
from stoker.cli.options import json_option, plane, refs_argument, say_which, spread

FORMATS = ("csv", "json", "html", "tensorboard", "wandb")
PLAIN = ("csv", "json", "html")  # what needs no package


@click.command("export")
@refs_argument()
@click.option(
    "--to", required=True, metavar="FOLDER", help="Write into this folder. The folder must be new or empty."
)
@click.option(
    "--as",
    "formats",
    multiple=True,
    type=click.Choice(FORMATS),
    metavar="FORMAT",
    help="Format: csv, json, html, tensorboard or wandb. Can be repeated.  [default: csv, json and html]",
)
@click.option(
    "--metric",
    "names",
    multiple=True,
    metavar="NAME",
    help="Export this metric. Can be repeated.  [default: all]",
)
@json_option("Print the folder and its files as one JSON object.")
def export(
    refs: tuple[str, ...], to: str, formats: tuple[str, ...], names: tuple[str, ...], as_json: bool
) -> None:
    """Write the parameters and metrics of runs to files:
    CSV, JSON, a report, event files of TensorBoard, or offline runs of W&B.

    \b
    csv          runs.csv: one row per run; curves.csv: one row per value.
    json         runs.json: parameters, metrics and curves.
    html         report.html: curves and tables; opens without a server.
    tensorboard  tensorboard/RUN/: event files.
    wandb        wandb/: offline runs, which `wandb sync` uploads.
    """
    folder = Path(to)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidSpec(f"{output.shown(to)} is not an empty folder.", hint="Name a new folder.")
    runs = spread(refs)
    for ref in runs:
        say_which(ref, plane().run(ref))
    with output.slow("reading the metrics of the runs"):
        found = plane().compare(runs)
        curves = curves_of([run["id"] for run in found["runs"]], names, POINTS_MAX)
    if not any(each["series"] or each["results"] for each in curves):
        raise NotFound(
            "The runs have no metrics.",
            hint="Stoker finds printed numbers only if at least three output lines have the same form.",
        )
    chosen = list(dict.fromkeys(formats)) or list(PLAIN)
    missing = next((each for each in chosen if each not in PLAIN and find_spec(each) is None), None)
    if missing:
        raise InvalidSpec(
            f"--as {missing} needs the package {missing}, which is not installed.",
            hint=f"pip install {missing}",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = [path for each in chosen for path in _WRITERS[each](folder, found, curves)]
    except OSError as e:
        raise InvalidSpec(f"{output.shown(to)} cannot be written: {e.strerror or e}.") from e
    if as_json:
        output.print_json({"folder": str(folder), "files": written})
        return
    output.say(f"wrote {', '.join(map(output.shown, written))} into {output.shown(to)}")


def _csv(folder: Path, found: dict, curves: Sequence[dict]) -> list[str]:
    header, rows = comparison.everything(found)
    (folder / "runs.csv").write_text(csv_text(header, rows), "utf-8", "surrogateescape")
    text = csv_text(POINT_COLUMNS, point_rows(curves))
    (folder / "curves.csv").write_text(text, "utf-8", "surrogateescape")
    return ["runs.csv", "curves.csv"]


def _json(folder: Path, found: dict, curves: Sequence[dict]) -> list[str]:
    series = [{"run": each["run"]["name"], **one} for each in curves for one in each["series"]]
    (folder / "runs.json").write_text(json.dumps({**found, "series": series}) + "\n", "ascii")
    return ["runs.json"]


def _html(folder: Path, found: dict, curves: Sequence[dict]) -> list[str]:
    from stoker.cli import vector

    few = curves_of([run["id"] for run in found["runs"]], [], SHOWN_POINTS)
    shown = {one["name"] for each in curves for one in each["series"]}
    few = [{**each, "series": [one for one in each["series"] if one["name"] in shown]} for each in few]
    names = ", ".join(run["name"] for run in found["runs"])
    parts = [
        vector.paragraphs(comparison.sentences(found, None)),
        vector.table(*comparison.table(found, list(found["metrics"]))),
        vector.picture(charts_of(few)),
        *(part for run in found["runs"] for part in _facts(run, vector)),
    ]
    vector.write(str(folder / "report.html"), vector.document(names, parts))
    return ["report.html"]


def _facts(run: dict, vector: ModuleType) -> list[str]:
    """A heading and a table of one run."""
    code = run.get("code") or {}
    commit = (
        f"{code['commit'][:12]}{' with changes' if code.get('dirty') else ''}"
        if isinstance(code.get("commit"), str)
        else ""
    )
    rows = [["state", run["state"]], ["command", output.command_line(run["command"])], ["git commit", commit],
            ["tags", ", ".join(run.get("tags") or ())], ["note", run.get("note") or ""],
            *([name, str(value)] for name, value in {**run["environment"], **run["parameters"]}.items())]
    return [vector.heading(run["name"]), vector.table(["", ""], [row for row in rows if row[1]])]


def _tensorboard(folder: Path, found: dict, curves: Sequence[dict]) -> list[str]:
    written = []
    for name, each in _named(curves):
        events = Events(folder / "tensorboard" / name)
        broken = events.update(each["series"])
        events.close()
        written.append(f"tensorboard/{name}")
        if broken:
            output.say(
                f"{name}: TensorBoard accepts only whole numbers as steps. Stoker uses the order of the "
                f"points as steps (1, 2, 3, ...) in these curves: {output.cut(', '.join(broken), 200)}"
            )
    return written


def _named(curves: Sequence[dict]) -> list[tuple[str, dict]]:
    """Each run with the name of its folder: its own name, or its id where two have the same."""
    names = [each["run"]["name"] for each in curves]
    return [
        (name if names.count(name) == 1 else each["run"]["id"], each)
        for name, each in zip(names, curves, strict=True)
    ]


def _wandb(folder: Path, found: dict, curves: Sequence[dict]) -> list[str]:
    from stoker.cli import offline

    told = {run["id"]: run for run in found["runs"]}
    for name, each in _named(curves):
        offline.write(folder, name, told[each["run"]["id"]], each["series"])
    return ["wandb"]


_WRITERS: dict[str, Callable[[Path, dict, Sequence[dict]], list[str]]] = {
    "csv": _csv, "json": _json, "html": _html, "tensorboard": _tensorboard, "wandb": _wandb}
