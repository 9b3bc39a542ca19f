"""Reads what the agent prints: values and errors out of its answers. Pure functions;
nothing here reaches a machine."""

from __future__ import annotations

import json
from collections.abc import Sequence

from stoker.backends.base import GpuTaken, NotYours, Observation
from stoker.base.errors import NotFound, StateError, StokerError, TargetError
from stoker.hosts.base import Finished


def parse_answer(done: Finished, verb: str, host: str) -> list[dict]:
    """The JSON objects an agent's verb printed.
    Raises what its error line, its exit code or nonsense stand for."""
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
                      hint="Check the machine: stoker doctor")


def parse_observations(lines: Sequence[dict], host: str) -> list[Observation]:
    """Observations out of answers. Raises TargetError(retry=False) for anything else."""
    try:
        return [Observation.from_json(line) for line in lines]
    except (KeyError, TypeError) as e:
        raise nonsense(host, json.dumps(list(lines))) from e


def problem(error: str, detail: str, host: str) -> StokerError:
    """What the agent's error words mean here."""
    if error == "state":
        return StateError(f"{detail[:1].upper()}{detail[1:]}.")
    if error in ("absent", "no_spec"):
        return NotFound(f"The run does not exist on {host}: {detail}.")
    if error == "disk_full":
        return TargetError(
            f"The disk of {host} is full: {detail}.", hint="Free space there: stoker gc", retry=True
        )
    if error == "gpu_taken":
        return GpuTaken(
            f"On {host} {detail}.", hint="Stoker looks for another GPU. See the GPUs: stoker top", retry=True
        )
    if error == "not_yours":
        return NotYours(
            f"{detail[:1].upper()}{detail[1:]} on {host}.",
            hint="Take over the runs there: stoker machine adopt NAME",
            retry=False,
        )
    if error == "switching_off":
        return TargetError(
            f"{host} is being switched off.", hint="Stoker tries again when it is on.", retry=True
        )
    if error == "away":
        return TargetError(
            f"On {host} {detail}.",
            hint="Is its disk mounted? Stoker keeps looking for the runs in it.",
            retry=True,
        )
    return TargetError(f"The agent on {host} failed: {detail} ({error}).", retry=False)


def nonsense(host: str, text: str) -> TargetError:
    """The error for an answer that is none."""
    return TargetError(f"{host} sent an answer that Stoker cannot read: {text[:120]!r}.", retry=False,
                       hint="Does its login shell print text? Does its Python work?")


def is_answers(told: object) -> bool:
    """True for a list of JSON objects."""
    return isinstance(told, list) and all(isinstance(answer, dict) for answer in told)


def only(lines: list[dict]) -> dict:
    """The last line of an answer; {} for an answer without lines."""
    return lines[-1] if lines else {}


def agent_is_gone(done: Finished) -> bool:
    """True when somebody emptied the folder of the agent there, or took a file out of it."""
    missing = (b"can't open file", b"ModuleNotFoundError: No module named 'agent-")
    return done.code in (1, 2) and not done.out and any(words in done.err for words in missing)
