"""`stoker tune`: where the time of an unmodified training goes, what would be faster, proved;
kept for `stoker run`."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stoker.base.config import home
from stoker.base.errors import InvalidSpec, NotFound
from stoker.base.state import EXIT_LIMIT, EXIT_NOT_TUNED
from stoker.cli import output
from stoker.cli.options import Duration, json_option
from stoker.cli.run.command import choose_python, run_env
from stoker.cli.run.keys import leave_on_signals

if TYPE_CHECKING:
    from stoker.tune.search import Report
    from stoker.tune.trial import Command

EPILOG = """Stoker starts the script several times in this folder. Each start lasts a few seconds. Your files do not change: the script
writes its files to a scratch folder, which Stoker removes afterwards. Stoker measures where the time of a step goes, and compares
promising settings with the unchanged script. Stoker measures the best settings again in new processes, then saves these settings.
`stoker run` uses the saved settings. If you press Ctrl-C, the search ends, and Stoker reports the results so far.

\b
  stoker tune train.py --epochs 90
  stoker tune --allow precision train.py       allow bfloat16, and check the accuracy
  stoker tune --fail-if "data wait > 10%" train.py
  stoker tune --show train.py                  show saved settings;  --forget  deletes the settings

Exit codes: 0: tuned, or no setting helps. 8: the condition of --fail-if is true. 9: tuning was not possible.
"""  # noqa: E501


@click.command(
    "tune",
    epilog=EPILOG,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS] [--]",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND...")
@click.option("--for", "for_s", type=Duration(), default="60s", show_default=True, metavar="60s",
              help="Longest time of the search. Accuracy checks take extra time.")
@click.option("--allow", multiple=True, type=click.Choice(["precision"]), metavar="precision",
              help="Also try bfloat16 and TF32. Stoker uses these formats only if the training reaches the "
                   "same loss with them.")
@click.option("--fail-if", metavar='"data wait > 10%"',
              help="For CI: exit with code 8 if this condition is true.")
@click.option(
    "--network", is_flag=True, help="Let the script write to the network, for example to a metrics server."
)
@click.option("--force", is_flag=True, help="Tune even if the training takes less than 10 minutes.")
@click.option("--no-keep", is_flag=True, help="Report only; do not save settings for `stoker run`.")
@click.option("--batch", is_flag=True,
              help="Find the largest and the fastest batch size, and tune nothing else.")
@click.option(
    "--svg",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Write the chart of the report to FILE.",
)
@click.option("--show", is_flag=True,
              help="Show the saved settings of this script. Without a command: of all scripts.")
@click.option("--forget", is_flag=True, help="Delete the saved settings of this script.")
@json_option("Print the report as one JSON object.")
def tune(command: tuple[str, ...], **o: Any) -> int:
    """Find settings that make a training faster, and measure their gain. The script is not changed.
    `stoker run` then uses these settings."""
    from stoker.tune import trial

    if o["show"] and not command:
        return _show(None, o)
    if not command:
        raise InvalidSpec("`stoker tune` needs a command.", hint="stoker tune train.py")
    env = run_env(os.environ, (), {})
    command = choose_python(command, {"target": "local", "cwd": None, "python": None}, env)
    read = trial.read(command, Path(_here()), env)
    if o["show"] or o["forget"]:
        if read.script is None:
            raise InvalidSpec("The command names no Python script.", hint="stoker tune --show train.py")
        return _show(read.script, o) if o["show"] else _forget(read.script)
    for warning in read.warnings:
        output.say(output.shown(warning))
    leave_on_signals()
    return _batch(read, o) if o["batch"] else _tune(read, o)


def _tune(command: Command, o: Mapping[str, Any]) -> int:
    from stoker.tune import limit, picture, report
    from stoker.tune.search import Options, Search

    wanted = limit.read(o["fail_if"]) if o["fail_if"] else None
    options = Options(
        seconds=o["for_s"],
        allow=frozenset(o["allow"]),
        network=o["network"],
        force=o["force"],
        keep=not o["no_keep"],
    )
    with _progress() as say:
        made = Search(command, options, home(), say, announce=output.say).run()
    if made.found and o["svg"]:
        Path(o["svg"]).write_text(picture.svg(made.found), "utf-8")
    if o["as_json"]:
        whole = report.to_json(made.found, made.card, made.facts) if made.found else {}
        output.print_json({**whole, "command": list(command.words), **made.to_json()})
    else:
        _print(made, command)
    if wanted and made.found and (why := limit.broken(wanted, made.found)):
        output.say(why)
        return EXIT_LIMIT
    return EXIT_NOT_TUNED if made.state in ("refused", "noisy", "stopped") else 0


def _print(made: Report, command: Command) -> None:
    from stoker.tune import picture, report

    script = command.script.name if command.script else ""
    if made.found and (made.state != "refused" or made.found.stages):
        terminal = output.is_terminal(sys.stdout)
        width = shutil.get_terminal_size().columns if terminal else None
        print(report.text(made.found, made.card, script=script, width=width, colour=terminal))
        if terminal:
            print(picture.terminal(made.found, width or 80, colour=True))
    for line in made.lines:
        print(f"  {output.shown(line)}")
    print(output.shown(made.sentence))
    if made.hint:
        print(f"Next: {output.shown(made.hint)}")
    for note in made.notes:
        print(f"Note: {output.shown(note)}")


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """One line that changes, on a terminal only."""
    if not output.is_terminal(sys.stderr) or output.json_wanted():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("") as status:
        def say(text: str) -> None:
            columns = shutil.get_terminal_size().columns - 4
            hint = "   (Ctrl-C: end and report)"
            left = columns - output.width(hint)
            status.update(
                Text(
                    output.cut_words(output.shown(text), left) + hint
                    if left > 20
                    else output.cut(text, columns)
                )
            )
        yield say


def _show(script: Path | None, o: Mapping[str, Any]) -> int:
    """What is kept for one script, or for all of this machine."""
    from stoker.tune import keep

    found = list(keep.entries(home())) if script is None else [e for e in [keep.get(home(), script)] if e]
    if o["as_json"]:
        output.print_json(found)
        return 0
    if script is not None and not found:
        raise NotFound(
            f"No settings are saved for {output.shown(str(script))}.",
            hint=f"stoker tune {output.shown(str(script))}",
        )
    for entry in found:
        print(output.shown(entry["script"]))
        print(f"  {', '.join(keep.words(entry['settings'])) or 'nothing'}")
        measured = keep.gain(entry)
        print(f"  {f'measured {measured}, ' if measured else ''}{output.ago(_iso(entry['at']))}")
        for line in keep.fitting(entry, Path(entry["script"]))[1]:
            print(f"  {output.shown(line)}")
    if not found:
        print("No settings are saved.")
    return 0


def _forget(script: Path) -> int:
    from stoker.tune import keep

    if not keep.forget(home(), script):
        raise NotFound(
            f"No settings are saved for {output.shown(str(script))}.",
            hint="List the saved settings: stoker tune --show",
        )
    output.say(f"settings deleted; {output.shown(str(script))} runs without tuned settings again")
    return 0


def _batch(command: Command, o: Mapping[str, Any]) -> int:
    from stoker.tune import batch, trial

    with _progress() as say:
        answer = batch.largest(command, parent=trial.rooms(home()), say=say)
    if o["as_json"]:
        output.print_json(batch.as_json(answer))
    else:
        for line in batch.lines(answer):
            print(output.shown(line))
    return EXIT_NOT_TUNED if answer.refused else 0


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError as e:
        raise InvalidSpec(
            "The current folder does not exist any more.", hint="Change to an existing folder."
        ) from e


def _iso(at: float) -> str:
    from stoker.base.units import iso

    return iso(at)
