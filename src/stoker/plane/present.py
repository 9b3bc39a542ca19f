"""The run object: what `--json` prints, what the sentence says and what to type next. Pure.

Besides what its names say (times are ISO 8601 UTC):
- `reason` and `started_at` are null until the run has one, or its start is confirmed. `attempts` counts
  those that have begun.
- `folder`: the run folder; `workdir`: where the run works.
- `unreachable`: `{"since", "next_at", "why"}` while the run's machine does not answer, else null. `state`
  then stays.
- `ref`: what to type for the run: its name, or its id if the name means a newer run.
- `purpose`: "rehearsal", "verification" or null. `outputs`: see homecoming.told.
- Lists and `top` add `progress`, `show` adds the fields of detail.detail.
"""

from __future__ import annotations

import shlex
import time

from stoker.backends.base import Observation
from stoker.base import state as words
from stoker.base.state import REASONS, STATE_SENTENCES, Reachability, State
from stoker.base.units import clock_time, format_duration, format_size, iso
from stoker.plane import homecoming
from stoker.plane.reach import Silence
from stoker.plane.record import Run
from stoker.plane.targets import Target

NEXT = {  # what to type while it is not final; `{id}` is the run
    State.PENDING: "stoker show {id}",
    State.STAGING: "stoker logs -f {id}",
    State.STARTING: "stoker logs -f {id}",
    State.RUNNING: "stoker logs -f {id}",
    State.STOPPING: "stoker wait {id}",
}

# by a variable that the run was given
PURPOSES = {"STOKER_REHEARSE": "rehearsal", "STOKER_VERIFY": "verification"}

WAITS_FOR_INPUT = {"sentence": "Waiting for input at the terminal.", "next": "stoker attach {id}"}
# a heartbeat older than that is told; by then an agent that was only frozen would have been replaced
STANDS_STILL_S = 20.0
CROWDED = "slow each other down"  # of a warning that holds only while the run is active
HAS_NO_INPUT = {"sentence": "Waiting for input, but the run has no terminal to type at.",
                "next": "stoker stop {id}, then run the command in the foreground or with --stdin FILE"}


def run_object(
    run: Run,
    target: Target | None,
    *,
    ref: str = "",
    waits_for: str | None = None,
    used_s: float | None = None,
    still_s: float | None = None,
    label: dict | None = None,
    home: dict | None = None,
    kept_in: str = "",
    silence: Silence | None = None,
) -> dict:
    """The JSON object of a run. `ref`: what to type for it, if not its name. `used_s`: newest value, if newer
    than the row.
    `still_s`: age of a heartbeat that no longer changes. `home`: its row of homecoming.py; `kept_in`: folder
    for files that cannot go to their place.
    `silence`: of its machine."""
    silence = None if run.state.final else silence
    spec = run.spec
    ref = ref or run.name
    folder = target.run_folder(run.id) if target else f"runs/{run.id}"
    used = max(run.used_s, used_s or 0.0)
    return {
        "id": run.id,
        "name": run.name,
        "kind": spec.kind,
        "state": run.state.value,
        "reason": run.reason,
        "exit_code": run.exit_code,
        "attempts": begun(run),
        "target": run.target,
        "created_at": iso(run.created_at),
        "started_at": _iso(run.started_at),
        "ended_at": _iso(run.ended_at),
        "folder": folder,
        "workdir": f"{folder}/work" if spec.copy else spec.folder,
        "command": list(spec.command),
        "argv": list(spec.argv),
        "priority": run.priority,
        "waits_for": waits_for,
        "reachability": run.reachability,
        "billing": "no" if target is not None and target.here else "unknown",
        "limits": {"time_s": run.limits.time_s, "seq": run.limits.seq},
        "used_s": round(used, 3),
        "pinned": run.pinned,
        "sentence": _sent(run, target) or sentence(run, waits_for, silence) + _stillness(still_s),
        "still_s": still_s,
        "unreachable": _silence(silence),
        "next": f"stoker stop --force {typed_ref(ref)}" if still_s else next_step(run, ref),
        "ref": ref,
        "warnings": _warnings(run),
        "tty": spec.tty,
        "tags": (label or {}).get("tags", []),
        "note": (label or {}).get("note", ""),
        "purpose": purpose(run),
        "restart_at": _iso(run.restart_at),
        "gpus": list(run.gpu_uuids),
        "home": spec.home,
        "mounts": dict(spec.mounts),
        "data": dict(spec.data),
        "stalled": None if run.state.final else run.evidence.get("stalled"),
        "outputs": homecoming.told(run, home or {}, kept_in, typed_ref(ref)),
    }


def _sent(run: Run, target: Target | None) -> str:
    """How much of a run's files has been sent; "" where none is being sent."""
    sent, whole, rate = (target.sending.get(run.id) if target else None) or (0, 0, 0.0)
    if not whole or run.state.final:
        return ""
    return (
        f"Sending files to {run.target}: {format_size(sent)} of {format_size(whole)}, "
        f"{format_size(int(rate))}/s."
    )


def _warnings(run: Run) -> list[str]:
    """Those that still hold: that many runs shared the cores is no news about an ended one."""
    return [text for text in run.warnings if not (run.state.final and CROWDED in text)]


def stands_still(run: Run, seen: Observation | None) -> float | None:
    """Seconds since the heartbeat changed, if it no longer changes; None also if the machine cannot be
    reached."""
    if (
        seen is None
        or run.state not in (State.RUNNING, State.STOPPING)
        or run.reachability != Reachability.OK
    ):
        return None
    age = seen.heartbeat_age_s
    return (
        age
        if isinstance(age, int | float) and seen.phase in ("running", "stopping") and age >= STANDS_STILL_S
        else None
    )


def _stillness(still_s: float | None) -> str:
    if not still_s:
        return ""
    return (
        f" The agent, the process that supervises this run, has been silent for {format_duration(still_s)}. "
        "Perhaps a signal or a debugger stopped the agent, its machine is paused, or its disk is blocked. "
        "While the agent is silent, Stoker does not enforce limits."
    )


def still(told: dict, now: float) -> str:
    """The sentence about a run that makes no step: for how long, and the line in which each rank and
    worker waits."""
    lasts = format_duration(now - told["since"])
    what = f"Stalled for {lasts}" if told.get("stalled") else f"Running, quiet for {lasts}"
    return f"{what}: {told['text']}." if told.get("text") else f"{what}."


def purpose(run: Run) -> str | None:
    """Why the run exists, if not as a normal run: a rehearsal, or `stoker verify-resume`."""
    return next((word for name, word in PURPOSES.items() if name in run.spec.env_names), None)


def begun(run: Run) -> int:
    """Number of attempts that have begun. An attempt that waits for resources or files has not begun, nor
    one whose start is not confirmed."""
    unconfirmed = run.state in (State.STARTING, State.STOPPING) and run.started_at is None
    return run.attempt - (unconfirmed or run.state in (State.PENDING, State.STAGING))


def _silence(silence: Silence | None) -> dict | None:
    """`unreachable` of the run object."""
    if silence is None:
        return None
    return {"since": iso(silence.since), "next_at": iso(silence.next_at), "why": silence.why}


def sentence(run: Run, waits_for: str | None = None, silence: Silence | None = None) -> str:
    """The state of the run in one sentence for beginners."""
    if run.state.final:
        return _ended(run)
    if run.state is State.PENDING and waits_for:
        told = f"Waiting for {waits_for}."
    elif run.state is State.STARTING and run.restart_at:
        told = f"Failed; restarts at {iso(run.restart_at)}."
    else:
        told = STATE_SENTENCES[run.state]
        told = f"{told[0].upper()}{told[1:]}."
    if silence is not None:
        told += (
            f" {run.target} has been unreachable since {clock_time(silence.since, time.time())}; "
            "Stoker keeps trying."
        )
    elif run.reachability == Reachability.UNREACHABLE:
        told += " The machine cannot be reached; this is the last known state."
    if run.evidence.get("taken_over"):
        told += (
            f" The run was taken over by {run.evidence['taken_over']}: this state folder can no longer "
            "stop the run."
        )
    if run.reachability == Reachability.UNSEEN:
        told += (
            " The run's processes were started in another container or on another node, and do not answer "
            "here. They may still be running."
        )
    if why := run.evidence.get("retrying"):  # the last one: it ends in a command
        told += (
            f" Stoker retries, because the last try failed: {why}"
            if silence is None
            else f" The last try failed: {why}"
        )
    return told


def _ended(run: Run) -> str:
    evidence = dict(run.evidence)
    if "limit" not in evidence and run.limits.time_s:
        evidence["limit"] = format_duration(run.limits.time_s)
    if "code" not in evidence and run.exit_code is not None:
        evidence["code"] = run.exit_code
    if isinstance(evidence.get("limit"), int | float):
        evidence["limit"] = format_duration(evidence["limit"])
    if not run.started_at and run.reason == "stopped_by_user":
        return "Stopped by you before the run started."
    told = words.sentence(run.reason or "lost", evidence)
    return (
        f"{told} Stoker does not restart the run, because every attempt would fail the same way."
        if evidence.get("not_restarted")
        else told
    )


def next_step(run: Run, ref: str) -> str:
    """What to type next; `ref` is the run."""
    typed = typed_ref(ref)
    check = f"stoker machine check {shlex.quote(run.target)}"
    if not run.state.final and run.reachability == Reachability.UNSEEN:
        return f"stoker stop --force {typed}, if that container or node is gone"
    if not run.state.final and run.reachability == Reachability.UNREACHABLE:
        return check
    if not run.state.final:
        return NEXT[run.state].format(id=typed)
    exception = run.evidence.get("exception")
    missing = isinstance(exception, dict) and exception.get("type") == "ModuleNotFoundError"
    if run.reason == "nonzero_exit" and missing:
        command = shlex.join(run.spec.command)
        return (
            f"stoker doctor -- {command}"
            if run.target == "local"
            else f"stoker doctor --on {shlex.quote(run.target)} -- {command}"
        )
    if run.reason == "start_failed" and run.target != "local" and not run.evidence.get("hint"):
        return check
    return words.what_next(run.reason or "", run.evidence, typed)


def corrections(run: Run, more: dict, ref: str, now: float) -> dict:
    """Fields of `show` that change because of facts from the run folder (`more`, from `detail.detail`)."""
    changed: dict = {}
    if more["waits_for_input"]:
        changed = dict(WAITS_FOR_INPUT if run.spec.stdin == "attached" else HAS_NO_INPUT)
        changed["next"] = changed["next"].format(id=typed_ref(ref))
    if more["still"]:
        changed["sentence"] = still(more["still"], now)
        changed["training"] = more["training"] and {**more["training"], "eta_s": None, "eta_epoch_s": None}
    if (more["resume"] or {}).get("back"):
        back = more["resume"]["back"]
        changed["sentence"] = f"{back[:1].upper()}{back[1:]}."
    if more["trained_nothing"]:
        changed["sentence"] = (
            f"{REASONS['nothing_trained'].sentence.removesuffix('.')}: {more['trained_nothing']}."
        )
    return changed


def typed_ref(ref: str) -> str:
    """A name or id, quoted as a user types it after a verb."""
    return f"-- {shlex.quote(ref)}" if ref.startswith("-") else shlex.quote(ref)


def _iso(moment: float | None) -> str | None:
    return None if moment is None else iso(moment)
