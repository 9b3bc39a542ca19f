"""The unfinished run of a command that is typed again: is it continued, or does a new run start?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stoker.cli import output
from stoker.cli.run import rehearse

if TYPE_CHECKING:
    from stoker.client import Client

# the exception that Python raises if a script asks for input and stdin is at its end
NO_INPUT = ("EOFError", "EOF when reading a line")


def unfinished(client: Client, spec: Mapping[str, Any]) -> list[dict]:
    """Unfinished runs of this command, newest first. Empty if the newest lacked input that this command has;
    says so on stderr."""
    found = [c for c in client.candidates(spec["folder"], spec["command"]) if not rehearse.is_one(client, c)]
    if not found or not _lacked_input(client.show(found[0]["id"]), spec):
        return found
    output.say(f"starting a new run, because {output.shown(found[0]['name'])} had no input on stdin, and "
               "this command has input")
    return []


def continues(there: dict, o: Mapping[str, Any]) -> bool:
    """Is the unfinished run of the same command to be continued? Asked on a terminal, yes by default."""
    if o["yes"]:
        return True
    if not output.can_ask():
        return False
    when = output.ago(there.get("ended_at") or there.get("created_at"))
    state, reason = there["state"], there.get("reason")
    why = (
        f"exit {there['exit_code']}"
        if reason == "nonzero_exit"
        else str(reason or state).replace("_", " ")
    )
    return output.ask(
        f"{output.shown(there['name'])} {state} ({why}) {when}. Retry in the same run?", default=True
    )


def _lacked_input(before: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    """True if an attempt of this run had less input than a new run would have: the script asked for input
    and got none, or --stdin gives a file to a run that had no input. A retry has the input of the run."""
    had = (before.get("spec") or {}).get("stdin")
    if had not in ("none", "file") or spec["stdin"] == "none":
        return False
    exception = (before.get("evidence") or {}).get("exception") or {}
    asked = (exception.get("type"), exception.get("message")) == NO_INPUT
    return asked or (had == "none" and spec["stdin"] == "file")
