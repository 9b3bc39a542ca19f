"""`stoker plot` and `stoker compare`: the numbers of runs as curves and as a table."""

from __future__ import annotations

import csv
import io
import shutil
import sys
from collections.abc import Iterator, Sequence

import click

from stoker.base.errors import InvalidSpec, NotFound
from stoker.cli import chart, output
from stoker.cli.figures import figure
from stoker.cli.options import json_option, plane, refs_argument, say_which, spread

CHARTS = 3  # of a run without --metric
COLUMNS = 100  # of a picture that goes into a pipe
METRICS = 4  # columns of a comparison without --metric
CELL = 24  # columns of a parameter's value
SHOWN_POINTS = 1000  # of one curve, in a picture
POINTS_MAX = 1_000_000  # of one curve that the server gives
POINT_COLUMNS = ("run", "metric", "source", "axis", "step", "value", "time")


@click.command("plot")
@refs_argument()
@click.option(
    "--metric",
    "names",
    multiple=True,
    metavar="NAME",
    help="Draw this metric, in training and validation. Can be repeated.  "
         "[default: three metrics, losses before others]",
)
@click.option("--svg", metavar="FILE", help="Write the picture to an SVG file, not to the terminal.")
@click.option("--png", metavar="FILE", help="Write the picture to a PNG file, not to the terminal. Needs "
                                            "matplotlib.")
@click.option("--html", metavar="FILE", help="Write the picture and a table to an HTML file, not to the "
                                             "terminal.")
@click.option(
    "--csv",
    "as_csv",
    is_flag=True,
    help="Print the points as CSV: run, metric, source, axis, step, value, time.",
)
@click.option(
    "--points",
    type=int,
    metavar="N",
    help="Reduce each curve to about N points. The smallest and the largest value are always included.  "
         "[default: 1000; with --csv or --json: 10000]",
)
@json_option("Print the curves as one JSON object.")
def plot(  # noqa: PLR0917
    refs: tuple[str, ...],
    names: tuple[str, ...],
    svg: str | None,
    png: str | None,
    html: str | None,
    as_csv: bool,
    points: int | None,
    as_json: bool,
) -> None:
    """Draw the metrics of runs as curves in the terminal:
    training and validation together, several runs in one picture.

    Reads the log of an Engine, the scalars of TensorBoard, and printed numbers such as `loss 0.25`.
    """
    if sum(map(bool, (svg, png, html, as_csv, as_json))) > 1:
        raise InvalidSpec("--svg, --png, --html, --csv and --json cannot be combined.")
    wanted = points or (None if as_json or as_csv else SHOWN_POINTS)
    found = curves_of(refs, names, wanted)
    if as_json:
        series = [{"run": each["run"]["name"], **one} for each in found for one in each["series"]]
        output.print_json(
            {
                "runs": [each["run"] for each in found],
                "series": series,
                "results": {each["run"]["name"]: each["results"] for each in found if each["results"]},
                "notes": _notes(found),
                "pictures": [
                    {"run": each["run"]["name"], **one}
                    for each in found
                    for one in each.get("pictures") or ()
                ],
            }
        )
        return
    for note in _notes(found):
        output.say(note)
    if as_csv:
        sys.stdout.write(csv_text(POINT_COLUMNS, point_rows(found)))
        return
    if not any(each["series"] for each in found):
        name = found[0]["run"]["name"]
        if any(each["results"] for each in found):
            raise NotFound(
                f"{name} has no curves: each of its metrics has only one value.",
                hint="To see the values: stoker "
                     + (f"show {output.type_ref(found[0]['run'])}" if len(found) == 1
                        else f"compare {output.command_line(refs)}"),
            )
        raise NotFound(
            f"{name} has no metrics.",
            hint=(
                "Stoker finds printed numbers only if at least three output lines have the same form. To "
                f"see the output: stoker logs {output.type_ref(found[0]['run'])}"
            ),
        )
    charts = charts_of(found)
    if png:
        from stoker.cli import pixels

        pixels.write(png, charts)
        output.say(f"wrote {output.shown(png)}")
        return
    target = svg or html
    if target:
        from stoker.cli import vector

        title = ", ".join(each["run"]["name"] for each in found)
        vector.write(target, vector.svg(charts) if svg else vector.page(title, charts, *_summary(found)))
        output.say(f"wrote {output.shown(target)}")
        return
    shown = charts if names else charts[:CHARTS]
    wide = shutil.get_terminal_size((COLUMNS, 0)).columns if output.is_terminal(sys.stdout) else COLUMNS
    print("\n\n".join(chart.draw(each, wide, colour=output.is_terminal(sys.stdout)) for each in shown))
    if len(charts) > len(shown):
        left = ", ".join(dict.fromkeys(each.title for each in charts[len(shown):]))
        output.say(
            f"{len(charts) - len(shown)} of {len(charts)} metrics not drawn: {output.cut(left, 200)}. To "
            "draw a metric: --metric NAME"
        )


def curves_of(refs: Sequence[str], names: Sequence[str], points: int | None) -> list[dict]:
    """The curves of all runs. A name that only some of the runs have is not an error."""
    found, missing = [], None
    for ref in spread(refs):
        run = plane().run(ref)
        say_which(ref, run)
        try:
            with output.slow(f"reading the metrics of {run['name']}"):
                found.append(plane().numbers(run["id"], names, points))
        except NotFound as e:
            if not names:
                raise
            missing = e
    if missing is not None and not found:
        raise missing
    return found


def _notes(found: Sequence[dict]) -> list[str]:
    return [f"{each['run']['name']}: {note}" for each in found for note in each["notes"]]


def charts_of(found: Sequence[dict]) -> list[chart.Chart]:
    """One picture per metric and axis: losses first, then known metrics, then the rest."""
    made: dict[tuple[str, str], chart.Chart] = {}
    ranks: dict[tuple[str, str], tuple] = {}
    many = len(found) > 1
    for each in found:
        for one in each["series"]:
            key = (one["metric"], one["axis"])
            if key not in made:
                title = one["name"].removeprefix(f"{one['split']}/")
                made[key] = chart.Chart(title, _axis(one["axis"]))
                ranks[key] = (
                    one["name"].endswith((".mean", ".2")),
                    one["better"] is None,
                    "loss" not in one["metric"],
                    len(ranks),
                )
            label = f"{each['run']['name']} {one['name']}" if many else one["name"]
            made[key].curves.append(chart.of(label, one["points"]))
    return [made[key] for key in sorted(made, key=ranks.__getitem__)]


def _axis(name: str) -> str:
    return "order of the lines" if name == "order" else "iteration" if name == "number at the begin" else name


def point_rows(found: Sequence[dict]) -> Iterator[tuple]:
    """One row per value, with the columns POINT_COLUMNS."""
    for each in found:
        for one in each["series"]:
            for at, value, time in one["points"]:
                yield each["run"]["name"], one["name"], one["source"], one["axis"], at, value, time


def _short(value: float) -> float | int:
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


def csv_text(header: Sequence[str], rows: Iterator[Sequence] | Sequence[Sequence]) -> str:
    """The rows as CSV that a spreadsheet opens without running formulas."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_safe(cell) for cell in header])
    for row in rows:
        writer.writerow([_safe(cell) for cell in row])
    return text.getvalue()


def _safe(cell: object) -> object:
    """A spreadsheet takes text that begins like this for a formula."""
    if isinstance(cell, float):
        return _short(cell)
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "@", "\t")) else cell


def _summary(found: Sequence[dict]) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            each["run"]["name"],
            one["name"],
            _point(one["last"]),
            _point(one[one["better"]] if one["better"] else None),
            f"{one['count']:,}",
            one["source"],
        ]
        for each in found
        for one in each["series"]
    ]
    return ["run", "metric", "last", "best", "points", "from"], rows


def _point(point: list | None, unit: str = "") -> str:
    if not point:
        return ""
    told = figure(point[1], unit)
    return told if point[0] is None else f"{told} @ {chart.number(float(point[0]))}"


@click.command("compare")
@refs_argument()
@click.option(
    "--metric",
    "names",
    multiple=True,
    metavar="NAME",
    help="Compare this metric. Can be repeated.  [default: four metrics, validation before training]",
)
@click.option(
    "--sort", metavar="NAME", help="Sort by this metric (best first) or by this parameter (smallest first)."
)
@click.option("--diff", is_flag=True, help="Print how the code of two runs differs.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all parameters and metrics as CSV.")
@click.option("--html", metavar="FILE", help="Write the comparison as an HTML file.")
@json_option("Print the comparison as one JSON object.")
def compare(  # noqa: PLR0917
    refs: tuple[str, ...],
    names: tuple[str, ...],
    sort: str | None,
    diff: bool,
    as_csv: bool,
    html: str | None,
    as_json: bool,
) -> None:
    """Compare runs: the parameters that differ, the best and the last value of each metric, steps per second.

    Runs that differ only in their seed form a group, with mean and spread.
    If two groups differ by less than the spread, neither group counts as better.
    @TAG means all runs with the tag TAG, such as the runs of a sweep.
    A pattern such as 'q-*' means all runs whose names match.
    """
    from stoker.cli import comparison

    chosen = spread(refs)
    for ref in chosen:
        say_which(ref, plane().run(ref), f"To compare all these runs: stoker compare '{output.shown(ref)}*'")
    with output.slow("reading the metrics of the runs"):
        found = plane().compare(chosen, code=diff)
    if diff and not as_json:
        comparison.show_code(found)
        return
    comparison.sort(found, sort)
    if as_json:
        output.print_json(found)
        return
    for run in found["runs"]:
        for note in run["notes"]:
            output.say(f"{run['name']}: {note}")
    if as_csv:
        header, rows = comparison.everything(found)
        sys.stdout.write(csv_text(header, rows))
        return
    header, rows = output.without_empty(*comparison.table(found, comparison.pick(found, names, METRICS)))
    if html:
        from stoker.cli import vector

        curves = curves_of([run["id"] for run in found["runs"]], names, SHOWN_POINTS)
        vector.write(html, vector.page("Comparison", charts_of(curves), header, rows))
        output.say(f"wrote {output.shown(html)}")
        return
    comparison.show(found, header, rows, sort or next(iter(names), None))
    metric = comparison.metric_named(found, sort) if sort else None
    if metric:
        best = found["runs"][0]
        output.say(f"best {output.shown(metric)}: {output.shown(best['name'])}. To repeat this run: stoker "
                   f"run -- {output.command_line(best['command'])}")
