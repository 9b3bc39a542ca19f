"""Reads what the agent prints: values and errors out of its answers. Pure functions;
nothing here reaches a machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from stoker.backends.base import GpuTaken, NotYours, Observation
from stoker.base.errors import NotFound, StateError, StokerError, TargetError
from stoker.hosts.base import Finished


def parse_answer(done: Finished, verb: str, host: str) -> list[dict]:
    """Return the JSON objects that a verb of the agent printed. Raise the error that the agent reported,
    or TargetError for an answer that cannot be read."""
    lines = []
    for line in done.out.splitlines():
        try:
            body = json.loads(line)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise nonsense(host, line.decode("utf-8", "replace"))
        lines.append(body)
    if done.code == 0:
        return lines
    if lines and "error" in lines[-1]:
        raise problem(str(lines[-1]["error"]), str(lines[-1].get("detail", "")), host)
    raise TargetError(f"The agent on {host} failed at '{verb}': {done.message}.", retry=done.code > 128,
                      hint="Check the machine: stoker doctor, or stoker machine check NAME")


def parse_observations(lines: Sequence[Any], host: str) -> list[Observation]:
    """Convert answers of the agent to observations. Raise TargetError(retry=False) for any other answer."""
    try:
        return [Observation.from_json(line) for line in lines]
    except (KeyError, TypeError) as e:
        raise nonsense(host, json.dumps(list(lines))) from e


def problem(error: str, detail: str, host: str) -> StokerError:
    """The error of Stoker for an error code of the agent."""
    if error == "state":
        return StateError(f"{detail[:1].upper()}{detail[1:]}.")
    if error in ("absent", "no_spec"):
        return NotFound(f"{host} does not have this run or attempt: {detail}.")
    if error == "disk_full":
        return TargetError(
            f"The disk of {host} is full: {detail}.",
            hint="Free some disk space on that machine: stoker gc",
            retry=True,
        )
    if error == "gpu_taken":
        return GpuTaken(
            f"On {host}, {detail}.",
            hint="Stoker looks for another GPU. See the GPUs: stoker top, or stoker top --on NAME",
            retry=True,
        )
    if error == "not_yours":
        return NotYours(
            f"{detail[:1].upper()}{detail[1:]} on {host}.",
            hint="Take over the runs there: stoker machine adopt NAME",
            retry=False,
        )
    if error == "switching_off":
        return TargetError(
            f"{host} is being switched off.",
            hint="Stoker tries again when the machine is switched on.",
            retry=True,
        )
    if error == "away":
        return TargetError(
            f"On {host}, {detail}.",
            hint="Check that the machine's disk is mounted. Stoker continues to look for the runs.",
            retry=True,
        )
    return TargetError(f"The agent on {host} failed: {detail} ({error}).", retry=False)


def nonsense(host: str, text: str) -> TargetError:
    """The error for an answer that Stoker cannot read."""
    return TargetError(
        f"{host} sent an answer that is not valid: {text[:120]!r}.",
        retry=False,
        hint="Check the machine: its login shell must print no text, and its Python must work.",
    )


def is_answers(told: object) -> bool:
    """True for a list of JSON objects."""
    return isinstance(told, list) and all(isinstance(answer, dict) for answer in told)


def only(lines: list[dict]) -> dict:
    """Return the last line of an answer, or {} for an answer without lines."""
    return lines[-1] if lines else {}


def agent_is_gone(done: Finished) -> bool:
    """True if the agent's folder on the machine is empty or lacks a file."""
    missing = (b"can't open file", b"ModuleNotFoundError: No module named 'agent-")
    return done.code in (1, 2) and not done.out and any(words in done.err for words in missing)
