"""What `show`, `top` and `gc` tell beyond the run object: out of run folders, wherever they are."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from stoker.backends.base import Capacity, Observation
from stoker.base import reading, rundir
from stoker.base.errors import StateError
from stoker.base.state import State, known_reason, resuming
from stoker.base.units import iso
from stoker.plane import own_files, resume, steps
from stoker.plane.control.lifecycle import exit_code
from stoker.plane.present import begun, typed_ref
from stoker.plane.record import Run
from stoker.plane.run_folder import Question, RunFolder, tail, whole
from stoker.plane.staging.outputs import Ground, is_sound
from stoker.plane.targets import Target

ATTEMPTS_SHOWN = 20
FILES_SHOWN = 200
LINES_READ = 1 << 20  # bytes of processes.jsonl
REHEARSAL = "rehearsal.json"  # left by the hooks of a rehearsal
PROCESSES = "processes.jsonl"


def questions(run: Run, target: Target, beside: list[tuple[str, str, float, float]]) -> list[Question]:
    """All questions about the run's folder that `detail` needs. `beside`: as `Queries.beside` returns it."""
    last = f"{rundir.ATTEMPTS}/{begun(run)}"
    names = [f"{rundir.ATTEMPTS}/{n}/{name}" for n in _shown(run) for name in (rundir.EXIT, rundir.AGENT)]
    names += [
        f"{rundir.CODE}/{rundir.COMMIT}",
        resume.STATE,
        resume.AUDITS,
        f"{last}/{rundir.HOOKS}/{REHEARSAL}",
        f"{last}/{rundir.ENGINE}",
        f"{last}/{rundir.HEARTBEAT}",
        f"{last}/{rundir.STILL}",
    ]
    ended = run.ended_at + target.ahead_s if run.state.final and run.ended_at else None
    return [
        *map(whole, names),
        tail(f"{last}/{rundir.STEPS}", steps.BYTES_READ),
        tail(f"{last}/{rundir.HOOKS}/{PROCESSES}", LINES_READ),
        ("has", f"{last}/{rundir.METRICS}"),
        ("has", resume.PUT_BACK),
        ("env",),
        ("cost",),
        ("edited",),
        ("changed", "" if run.spec.copy else run.spec.folder, run.created_at, ended, FILES_SHOWN),
        ("written", [run.id]),
        ("written", _neighbours(run, target, beside)),
    ]


def _shown(run: Run) -> range:
    return range(max(1, begun(run) - ATTEMPTS_SHOWN + 1), begun(run) + 1)


def _neighbours(run: Run, target: Target, beside: list[tuple[str, str, float, float]]) -> list[str]:
    """Other runs in the same folder on the same machine; a copy has none."""
    return (
        []
        if run.spec.copy
        else [each for each, where, _, _ in beside[: own_files.OTHERS_MAX] if where == target.name]
    )


def detail(
    run: Run,
    target: Target,
    folder: RunFolder,
    history: list[dict],
    beside: list[tuple[str, str, float, float]],
) -> dict:
    """The fields that `show` adds; empty if the machine cannot be reached. `folder`: the answer to
    `questions`.

    `resume` is state.json with its sentences (see `_resume`), `training` of steps.summary, `rehearsal` the
    rehearsal.json of the last attempt or null.
    """
    seen, last = folder.seen, f"{rundir.ATTEMPTS}/{begun(run)}"
    lines, processes = (
        folder.lines(f"{last}/{rundir.STEPS}"),
        folder.lines(f"{last}/{rundir.HOOKS}/{PROCESSES}"),
    )
    attempts = [_attempt(folder, n, seen, target.ahead_s) for n in _shown(run)]
    files = _files(run, target, folder, beside) if folder.reached else None
    told = {
        "evidence": run.evidence,
        "telemetry": seen.telemetry if seen else None,
        "attempts_detail": attempts,
        "files": files,
        "code": folder.json(f"{rundir.CODE}/{rundir.COMMIT}"),
        "usage": _usage(folder),
        "waits_for_input": bool(seen.waits_for_input) if seen and not run.state.final else False,
        "interpreter": _interpreter(run),
        "env_names": folder.told("env").get("names"),
        "spec": run.spec.to_json(),
        "resume": _resume(run, folder, attempts, time.time() + target.ahead_s)
        if run.spec.resume != "off"
        else None,
        "hooks": _hooks(run, processes) if folder.reached else None,
        "rehearsal": folder.json(f"{last}/{rundir.HOOKS}/{REHEARSAL}") if run.spec.hooks else None,
        "engine": folder.json(f"{last}/{rundir.ENGINE}"),
        "training": steps.summary(lines, _before(run, folder)) if run.spec.hooks else None,
        "trained_nothing": None
        if files or folder.has(f"{last}/{rundir.METRICS}")
        else _trained_nothing(run, lines, processes),
        "history": [{**event, "at": iso(event["at"])} for event in history],
        "run_pid": seen.run_pid if seen and not run.state.final else None,
        "ladder": (folder.json(f"{last}/{rundir.HEARTBEAT}") or {}).get("stage")
        if run.state is State.STOPPING
        else None,
        "still": folder.json(f"{last}/{rundir.STILL}") if run.state is State.RUNNING else None,
    }
    return {**told, "broken_files": folder.broken}


def _before(run: Run, folder: RunFolder) -> int:
    """The steps before the newest attempt, if it resumed exactly."""
    again = run.spec.resume != "off" and begun(run) > 1
    return resume.steps_before(folder.json(resume.STATE), begun(run)) if again else 0


def edited(run: Run, target: Target) -> tuple[list[str], int]:
    """The content of `edited_files`, with paths as the user types them. A copy on another machine is never
    edited."""
    paths, step = reading.edited_files(target.run_folder(run.id)) if target.here else ([], 0)
    return _typed(run, paths), step


def _typed(run: Run, paths: list[str]) -> list[str]:
    """Paths below the run's folder as the user types them."""
    return [
        os.path.relpath(path, run.spec.folder) if Path(path).is_relative_to(run.spec.folder) else path
        for path in paths
    ]


def refuse_edited(run: Run, target: Target | None, typed: str) -> None:
    """Raise StateError if a restart from scratch would discard an image and was not requested (`edited`)."""
    paths, step = edited(run, target) if target is not None else ([], 0)
    if paths:
        more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
        raise StateError(
            f"{paths[0]}{more} was edited after the image at step {step:,}; {run.name} can resume only with "
            "the unedited files.",
            hint=f"Undo the edits, or restart from scratch: stoker start --edited {typed}",
        )


def _resume(run: Run, folder: RunFolder, attempts: list[dict], now: float) -> dict | None:
    """`now` by the clock of its machine.

    `state` is "image taken, not yet checked" instead of "resumable" until an audit was bit-exact; then
    `checked` is true. Added to state.json: `sentence` (the status in a line) · `came_back` · `began_anew`
    (why a later attempt began from the start) · `not_taken` [str] · `log` [[attempt, bytes]], the pieces of
    one log · `edited` [path]: files of the script that have changed since the image · `resumes_at`: step at
    which the next attempt resumes, else null · `way_back`: forecast of a resume · `dear`: alternatives if
    that is more than 10 % of the training that it saves, else null · `starts_again`: programs that set-up
    starts again · `audits`, and with `--audit` `audited` (the list of audits.json).
    """
    state = folder.json(resume.STATE)
    if state is None:
        return None
    if run.spec.audit:
        state["audited"] = (folder.json(resume.AUDITS) or {}).get("audits") or []
    sizes = {each["attempt"]: each["out_bytes"] for each in attempts if each["out_bytes"] is not None}
    parts = resume.log_parts(state, sizes)
    stands = state
    if run.state is State.DONE and state.get("state") != "not resumable":  # the agent has removed its images
        stands = {**state, "state": "ended", "reason": None, "image": None}
    files = (
        resume.given_back(state, folder.has(resume.PUT_BACK), begun(run), typed_ref(run.name))
        if run.state.final
        else None
    )
    return {
        **state,
        "state": resume.word(state),
        "checked": resume.checked(state),
        "log": parts,
        "sentence": resume.sentence(stands, now, live=not run.state.final),
        "came_back": resume.came_back(state),
        "began_anew": resume.began_anew(state),
        "audits": resume.audits(state),
        "resumes_at": resume.resumes_at(stands),
        "way_back": resume.way_back(stands),
        "dear": resume.dear(stands),
        "not_taken": resume.not_taken(state),
        "starts_again": resume.starts_again(stands),
        "edited": _typed(run, folder.told("edited").get("paths") or []),
        "files": files,
        "back": _back(run, state),
    }


def _hooks(run: Run, processes: list[dict]) -> dict | None:
    return (
        resume.hooked(processes, list(run.spec.argv or run.spec.command))
        if run.spec.hooks and begun(run) and run.reason != "start_failed"
        else None
    )


def _back(run: Run, state: dict | None) -> str | None:
    """How far a running attempt is on its way back to an image."""
    return resuming((state or {}).get("back"), begun(run)) if run.state is State.RUNNING else None


def progress(run: Run, target: Target | None) -> dict | None:
    """Progress of a running training, for lists; None if not known. Does not ask other machines."""
    if (
        run.state is not State.RUNNING
        or not run.spec.hooks
        or target is None
        or not target.here
        or not begun(run)
    ):
        return None
    folder = Path(target.run_folder(run.id))
    again = run.spec.resume != "off" and begun(run) > 1
    state = reading.read_json(folder / resume.STATE) if again else None
    back = _back(run, state) if again else None
    if back:
        return {"step": None, "steps_s": None, "done": None, "eta_s": None, "back": back}
    before = resume.steps_before(state, begun(run))
    return steps.progress(folder / rundir.ATTEMPTS / str(begun(run)), before)


def _trained_nothing(run: Run, lines: list[dict], processes: list[dict]) -> str | None:
    """Only of a run that ended well at its first attempt."""
    ended_well = run.spec.hooks and run.reason == "exited" and not run.exit_code and begun(run) == 1
    return steps.trained_nothing(lines, processes) if ended_well else None


def _attempt(folder: RunFolder, number: int, seen: Observation | None, ahead_s: float) -> dict:
    """`ahead_s`: of the clock there."""
    base = f"{rundir.ATTEMPTS}/{number}"
    exit_ = folder.json(f"{base}/{rundir.EXIT}")
    live = seen if seen is not None and seen.attempt == number else None
    agent = None if exit_ else folder.json(f"{base}/{rundir.AGENT}")
    told = exit_ or {}
    started, ended = told.get("started_at") or (agent or {}).get("started_at"), told.get("ended_at")
    return {
        "attempt": number, "phase": "ended" if exit_ else live.phase if live else "unknown",
        "started_at": iso(started - ahead_s) if started else None,
        "ended_at": iso(ended - ahead_s) if ended else None,
        "reason": told.get("reason") and known_reason(told["reason"]), "exit_code": exit_code(told),
        "signal_name": told.get("signal_name"), "used_s": told.get("used_s"),
        "out_bytes": told.get("out_bytes", live.out_bytes if live else None),
        "err_bytes": told.get("err_bytes", live.err_bytes if live else None),
        "leftovers": told.get("leftovers"), "gaps": told.get("gaps"), "evidence": told.get("evidence"),
    }


def _files(
    run: Run, target: Target, folder: RunFolder, beside: Sequence[tuple[str, str, float, float]]
) -> list[dict]:
    """New and changed files since it first began. `beside`: as of `Queries.beside`.

    `[{"path", "bytes", "change": "new" or "changed", "uncertain", "place": "here", "outputs", "there", or
    null on this machine}]`. Files that only other runs were seen to write are left out; `uncertain`: see
    own_files.tell_apart.
    """
    if run.created_at == 0 or not begun(run):
        return []
    others = [own_files.Beside(begun, over) for _, _, begun, over in (() if run.spec.copy else beside)]
    own, theirs = (
        folder.told("written", ids).get("paths") or ()
        for ids in ([run.id], _neighbours(run, target, list(beside)))
    )
    changed = folder.told("changed", "" if run.spec.copy else run.spec.folder)
    files = own_files.tell_apart(changed, own, theirs, others)
    if target.here:
        return [{**file, "place": None} for file in files]
    ground = Ground(Path(run.spec.folder), target.kept / run.id)
    versions = {file["path"]: {**file, "sent": None} for file in changed.get("files") or ()}
    places = {path: ground.place(file) if is_sound(file) else "there" for path, file in versions.items()}
    return [{**file, "place": places[file["path"]]} for file in files]


def _usage(folder: RunFolder) -> dict:
    cost = folder.told("cost")
    return {"folder_bytes": cost["bytes"], "folder_files": cost["inodes"]} if cost else {}


def _interpreter(run: Run) -> str | None:
    program = run.spec.argv[0] if run.spec.argv else ""
    return program if os.path.basename(program).startswith(("python", "pypy")) else None


def cost(folder: Path) -> tuple[int, int]:
    """Bytes on disk and inodes of a folder; links are counted, not followed."""
    return reading.folder_cost(str(folder), float("inf")) or (0, 0)


def machine(target: Target, capacity: Capacity) -> dict:
    """Facts about the machine for `top`."""
    return {
        "hostname": socket.gethostname() if target.here else target.config.host,
        "cpus": capacity.cpus,
        "load": list(os.getloadavg()) if target.here else None,
        "memory": {"total_bytes": capacity.memory_bytes, "available_bytes": capacity.memory_free_bytes},
        "disk": {
            "total_bytes": capacity.disk_bytes,
            "free_bytes": capacity.disk_free_bytes,
            "inodes_free": capacity.inodes_free,
        },
        "gpus": list(capacity.gpus),
        "slots": target.config.slots,
    }
