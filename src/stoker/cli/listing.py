"""Lists of runs: ps; and the labels by which they are found: tag, note."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from stoker.base.short import short_words
from stoker.base.state import State
from stoker.base.units import format_duration, from_iso
from stoker.cli import output
from stoker.cli.figures import now_words
from stoker.cli.options import ALL_RUNS, Since, find, json_option, plane, ref_argument, spread

RECENT_RUNS = 10
LOOKED_AT = 50
WHY_COLUMNS = 40  # of what a run waits for; `show` has all of it
STATE_LEAST = 24  # columns that a state gets there, with what stands in its brackets
COMMAND_LEAST = 16  # columns that a command gets on a narrow terminal
# columns that a narrow terminal leaves out, the first one first; `show` has them
LEFT_OUT = ("RATE", "RAN", "LEFT", "TAGS", "STEP", "NUMBERS")
REASON_WORDS = {
    "stopped_by_user": "",
    "limit_time": "time limit",
    "host_oom": "out of memory",
    "gpu_oom": "GPU out of memory",
}
HEADER = ("NAME", "ID", "STATE", "SINCE", "RAN", "STEP", "RATE", "LEFT", "NUMBERS", "TAGS", "COMMAND")


@click.command("ps")
@click.option(
    "-a", "--all", "all_runs", is_flag=True, help="List all runs, including rehearsals and verifications."
)
@click.option(
    "-n",
    "count",
    type=click.IntRange(min=0),
    metavar="N",
    help="List active runs and the N runs that ended last.  [default: 10]",
)
@click.option(
    "--since",
    type=Since(),
    metavar="2d",
    help="List only active runs, and runs that ended since this time, such as 2d (the last 2 days), today "
         "or yesterday.",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([s.value for s in State]),
    metavar="STATE",
    help="List only runs in this state. If repeated: runs in any of these states.",
)
@click.option("--grep", metavar="TEXT", help="List only runs with TEXT in their name, command, tags or note.")
@click.option(
    "--tag", "tags", multiple=True, metavar="TAG",
    help="List only runs with this tag. If repeated: runs with all these tags.",
)
@json_option("Print a JSON list of runs.")
def ps(all_runs: bool, count: int | None, as_json: bool, **wanted: Any) -> None:
    """List active runs and the ten runs that ended last, newest first.
    Prints on stderr how many runs the list leaves out. With filters, counts only runs that match."""
    now, filtered = time.time(), any(wanted.values())
    known = _known(everything=bool(all_runs or filtered or (count or 0) > RECENT_RUNS))
    fitting = [run for run in known if _matches(run, now, wanted)]
    matching = [run for run in fitting if all_runs or not run.get("purpose")]
    found = (
        matching
        if all_runs or (filtered and count is None)
        else _newest(matching, RECENT_RUNS if count is None else count)
    )
    if as_json:
        output.print_json(found)
        return
    if found:
        _print(found, now)
    _say_hidden(len(found), len(fitting) - len(found) if filtered else None, all_runs)


def _known(*, everything: bool) -> list[dict]:
    """All runs, or at least the active ones and those that ended last."""
    newest = plane().runs(all=True, limit=ALL_RUNS if everything else LOOKED_AT)
    if everything or len(newest) < LOOKED_AT:
        return newest
    seen = {run["id"] for run in newest}
    both = [*newest, *(run for run in plane().runs(limit=ALL_RUNS) if run["id"] not in seen)]
    return sorted(both, key=lambda run: run["created_at"], reverse=True)


def _newest(runs: list[dict], count: int) -> list[dict]:
    """All active runs, and the `count` that ended last; newest first."""
    ended = sorted(
        (run for run in runs if State(run["state"]).final),
        key=lambda run: run.get("ended_at") or "",
        reverse=True,
    )
    kept = {run["id"] for run in ended[:count]}
    return [run for run in runs if not State(run["state"]).final or run["id"] in kept]


def _matches(run: dict, now: float, wanted: Mapping[str, Any]) -> bool:
    since, states, tags, grep = (wanted[name] for name in ("since", "states", "tags", "grep"))
    if (
        since
        and State(run["state"]).final
        and now - from_iso(run.get("ended_at") or run["created_at"]) > since
    ):
        return False
    if states and run["state"] not in states:
        return False
    if not set(tags) <= set(run.get("tags") or ()):
        return False
    text = " ".join([run["name"], *run["command"], *(run.get("tags") or ()), run.get("note") or ""])
    return not grep or grep.casefold() in text.casefold()


def _say_hidden(shown: int, more_match: int | None, all_runs: bool) -> None:
    """How many runs are not in the list, and how to see them. more_match: how many of them match the
    filters; None without filters."""
    hidden = sum(plane().info()["runs"].values()) - shown
    if not shown and hidden <= 0:
        output.say("no runs yet. Start one: stoker run train.py")
    elif more_match and not all_runs:
        matches = "run matches" if more_match == 1 else "runs match"
        output.say(f"{more_match} more {matches}. To list all of them, add --all")
    elif not shown and all_runs:
        output.say("no run matches")
    elif not shown:
        output.say(f"no run matches. All runs ({hidden}): stoker ps --all")
    elif more_match is None and hidden > 0 and not all_runs:
        output.say(f"{hidden} more run{'' if hidden == 1 else 's'}. All: stoker ps --all")


def _print(found: list[dict], now: float) -> None:
    rows = [
        [
            output.shown(run["name"]),
            needed_id(run),
            state_words(run),
            when_words(run, now),
            _time_words(run),
            *progress_words(run),
            now_words(run.get("numbers")),
            output.shown(", ".join(run.get("tags") or ())),
            short_command(run["command"]),
        ]
        for run in found
    ]
    header, rows = output.without_empty(HEADER, rows)
    if output.is_terminal(sys.stdout):  # in a pipe nothing is cut
        header, rows = fit(header, rows, shutil.get_terminal_size().columns)
    output.print_table(
        header,
        rows,
        right=frozenset({header.index(t) for t in ("STEP", "RATE") if t in header}),
        styles=output.STATE_STYLES,
    )


def fit(header: Sequence[str], rows: list[list[str]], columns: int) -> tuple[list[str], list[list[str]]]:
    """Fit the table to a terminal of this width: removes numbers, then columns, until the command (the
    last column) has its minimum width; then cuts the command between words."""
    rows = output.cut_names(header, rows, columns)
    if "NUMBERS" in header:
        at = header.index("NUMBERS")
        room = columns - _columns_of(header, rows, without=at) - COMMAND_LEAST - 2
        rows = [[*row[:at], _fewer(row[at], room), *row[at + 1:]] for row in rows]
    header, rows = output.without_empty(header, rows)
    if "STATE" in header:
        at = header.index("STATE")
        room = max(STATE_LEAST, columns - _columns_of(header, rows, without=at) - COMMAND_LEAST - 2)
        rows = [[*row[:at], _shorter_state(row[at], room), *row[at + 1:]] for row in rows]
    for title in LEFT_OUT:
        if columns - _columns_of(header, rows) >= COMMAND_LEAST:
            break
        kept = [i for i, known in enumerate(header) if known != title]
        header, rows = [header[i] for i in kept], [[row[i] for i in kept] for row in rows]
    left = max(COMMAND_LEAST, columns - _columns_of(header, rows))
    return header, [[*row[:-1], output.cut_words(row[-1], left)] for row in rows]


def _columns_of(header: Sequence[str], rows: list[list[str]], without: int | None = None) -> int:
    """The columns that all but the last one take."""
    return sum(
        max(output.width(row[i]) for row in (header, *rows)) + 2
        for i in range(len(header) - 1)
        if i != without
    )


def _shorter_state(text: str, columns: int) -> str:
    """The state with less in its brackets, until it fits; the first part is cut between words."""
    state, _, inside = text.partition(" (")
    parts = inside.removesuffix(")").split(", ")
    while len(parts) > 1 and output.width(f"{state} ({', '.join(parts)})") > columns:
        parts.pop()
    if not inside or output.width(f"{state} ({', '.join(parts)})") <= columns:
        return f"{state} ({', '.join(parts)})" if inside else text
    return f"{state} ({output.cut_words(parts[0], max(1, columns - output.width(state) - 3))})"


def _fewer(text: str, columns: int) -> str:
    """Only as many of the values as fit, at least the first."""
    parts = text.split("  ")
    while len(parts) > 1 and output.width("  ".join(parts)) > columns:
        parts.pop()
    return "  ".join(parts)


def progress_words(run: dict) -> tuple[str, str, str]:
    """Step, steps per second and remaining time of a running training; empty if unknown."""
    told = run.get("progress") or {}
    if not told.get("step"):
        return "", "", ""
    rate = told.get("steps_s")
    left = format_duration(told["eta_s"]) if told.get("eta_s") is not None else ""
    return f"{told['step']:,}", f"{rate:.3g}/s" if rate else "", left


def short_command(command: Sequence[str]) -> str:
    """The command without the folders of interpreter and script: `python gpt.py --lr 0.1`."""
    return output.command_line(short_words(command))


def needed_id(run: dict) -> str:
    """The id of a run whose name means a newer run; otherwise empty."""
    return run["id"] if run.get("ref", run["name"]) != run["name"] else ""


def state_words(run: dict) -> str:
    """The state, with important facts in brackets."""
    state = run["state"]
    extra = []
    if (run.get("progress") or {}).get("back"):
        extra.append(run["progress"]["back"])
    if state in (State.FAILED, State.STOPPED) and run.get("reason"):
        reason = (
            f"exit {run['exit_code']}" if run["reason"] == "nonzero_exit" else run["reason"].replace("_", " ")
        )
        extra += filter(None, [REASON_WORDS.get(run["reason"], reason)])
    if state == State.PENDING and run.get("waits_for"):
        extra.append(
            output.cut_words(f"waits for {output.shown(run['waits_for'].split(' (to ')[0])}", WHY_COLUMNS)
        )
    if state == State.STARTING and run.get("restart_at"):
        extra.append("waiting to restart")
    if run.get("unreachable"):
        extra.append(output.unreachable(run["unreachable"]))
    elif not State(state).final and run.get("reachability") in ("unreachable", "unseen"):
        extra.append(run["reachability"])
    if run.get("still_s"):
        extra.append(f"agent silent for {format_duration(run['still_s'])}")
    if run.get("stalled"):
        extra.append("stalled")
    if run.get("pinned"):
        extra.append("pinned")
    return f"{state} ({', '.join(extra)})" if extra else state


def when_words(run: dict, now: float) -> str:
    """How long the run has been in its state, in words."""
    state = State(run["state"])
    moment = (
        run.get("ended_at")
        if state.final
        else None
        if state in (State.PENDING, State.STAGING)
        else run.get("started_at")
    )
    return output.ago(moment or run.get("created_at"), now)


def _time_words(run: dict) -> str:
    return format_duration(run["used_s"]) if run.get("used_s") else "-"


@click.command("tag")
@ref_argument()
@click.argument("tags", nargs=-1, metavar="[TAG]...")
@click.option("--remove", multiple=True, metavar="TAG", help="Remove this tag. Can be repeated.")
@json_option("Print the run as JSON.")
def tag(ref: str, tags: tuple[str, ...], remove: tuple[str, ...], as_json: bool) -> None:
    """Add tags to a run, or print its tags. `stoker ps --tag TAG` lists the runs with this tag.

    @TAG means all runs with the tag TAG.
    A pattern such as 'q-*' means all runs whose names match.
    """
    runs = _meant(ref)
    if tags or remove:
        runs = [plane().label(run["id"], add=tags, remove=remove) for run in runs]
    _print_label(runs, {run["id"]: " ".join(run.get("tags") or ()) for run in runs}, as_json)


@click.command("note")
@ref_argument()
@click.argument("text", required=False)
@json_option("Print the run as JSON.")
def note(ref: str, text: str | None, as_json: bool) -> None:
    """Write a note about a run, or print its note. An empty TEXT removes the note.

    @TAG means all runs with the tag TAG.
    A pattern such as 'q-*' means all runs whose names match.
    """
    runs = _meant(ref)
    if text is not None:
        runs = [plane().label(run["id"], note=text) for run in runs]
    _print_label(runs, {} if text is not None else {run["id"]: run.get("note") for run in runs}, as_json)


def _meant(ref: str) -> list[dict]:
    return [find(each) for each in spread([ref])]


def _print_label(runs: Sequence[dict], labels: Mapping[str, str | None], as_json: bool) -> None:
    """Print the label of each run; beside other runs with its name."""
    if as_json:
        output.print_json(runs[0] if len(runs) == 1 else runs)
        return
    for run in runs:
        if label := labels.get(run["id"]):
            print(output.shown(f"{run['name']}: {label}" if len(runs) > 1 else label))
