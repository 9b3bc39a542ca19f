"""`stoker run --dry-run`: what a run would send to a machine, and what it would leave here."""

from __future__ import annotations

import shlex

from stoker.base.units import format_size
from stoker.cli import output

SHOWN = 8


def print_preview(told: dict) -> None:
    """Print the server's answer as a table."""
    name = output.shown(told["target"])
    output.say("dry run: nothing was sent or started")
    if told["in_place"]:
        output.say("the run would use this folder itself; nothing would be copied")
        return
    rows = [
        ("command", shlex.join(told["command"])),
        ("folder", told["folder"]),
        ("in the copy", _count(told)),
        (
            "largest",
            ", ".join(f"{each['path']} ({format_size(each['bytes'])})" for each in told["largest"]) or "-",
        ),
        ("left out", _stays(told["left_out"])),
        ("already there", _count(told["there"])),
        ("to send", _count(told["send"])),
    ]
    rows += [("link", f"{link} -> {place}") for link, place in told["mounts"].items()]
    rows += [("data", f"{name} -> {place} (sent once)") for name, place in told["data"].items()]
    wide = max(len(title) for title, _ in rows)
    for title, value in rows:
        print(f"{title:<{wide}}  {output.shown(value)}")
    for line in told["warnings"]:
        if " is not in the copy (" not in line:
            output.say(output.shown(line))
    output.say(f"to send and start the run on {name}: repeat the command without --dry-run")


def _count(told: dict) -> str:
    return f"{told['files']} file{'' if told['files'] == 1 else 's'}, {format_size(told['bytes'])}"


def _stays(left_out: dict) -> str:
    """Each path with why, the first of them."""
    named = [f"{path} ({why})" for path, why in list(left_out.items())[:SHOWN]]
    more = len(left_out) - len(named)
    return ", ".join([*named, *([f"{more} more"] if more else [])]) or "nothing"
