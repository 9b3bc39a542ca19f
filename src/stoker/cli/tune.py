"""`stoker tune`: where the time of an unmodified training goes, what would be faster, proved; kept for `stoker run`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from stoker.base.config import home
from stoker.base.errors import InvalidSpec
from stoker.cli import output
from stoker.cli.options import Duration, json_option
from stoker.cli.run import run_env


@click.command("tune", context_settings={"allow_interspersed_args": False}, options_metavar="[OPTIONS] [--]")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND...")
@click.option("--for", "for_s", type=Duration(), default="60s", show_default=True, metavar="60s", help="Search for at most so long.")
@click.option("--network", is_flag=True, help="Let the trials write to the network, as to a metrics server.")
@json_option("Print the report as one JSON object.")
def tune(command: tuple[str, ...], **o: Any) -> int:
    """Find out where a training's time goes and what makes it faster, without touching the script."""
    from stoker.tune import trial

    if not command:
        raise InvalidSpec("There is no command to tune.", hint="stoker tune train.py")
    where = home()
    parent = trial.rooms(where)
    read = trial.read(command, Path(os.getcwd()), run_env(os.environ, (), None))
    order = {"mode": "probe", "seconds": o["for_s"] / 2, "steps": 0, "seed": None, "settings": {}, "try": [], "network": o["network"]}
    probe = trial.Trial(read, order, parent).start()
    try:
        ended = probe.wait(o["for_s"] * 3, start_s=max(60.0, o["for_s"]), hear=lambda told: output.say(str(told.get("text") or told)))
    finally:
        probe.end()
        probe.clear()
    output.print_json({"how": ended.how, "why": ended.why, "lines": ended.lines, "seconds": ended.seconds, "facts": ended.facts})
    return 0 if ended.how == "facts" else 1
