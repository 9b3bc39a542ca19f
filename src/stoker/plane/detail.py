"""What `show`, `top` and `gc` tell beyond the run object: read from run folders, with a bounded amount of work."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from stoker.backends.base import Capacity, Observation
from stoker.base import reading, rundir
from stoker.base.errors import StateError, StokerError
from stoker.base.state import State, known_reason, resuming
from stoker.base.units import iso
from stoker.plane import own_files, resume, stage, steps
from stoker.plane.lifecycle import exit_code
from stoker.plane.present import begun, typed_ref
from stoker.plane.record import Run
from stoker.plane.targets import Target

ATTEMPTS_SHOWN = 20
FILES_SHOWN = 200
ENV_MAX = 64 << 20  # bytes
REHEARSAL = "rehearsal.json"  # left by the hooks of a rehearsal


def detail(run: Run, target: Target, seen: Observation | None, history: list[dict],
           beside: list[tuple[str, str, float, float]]) -> dict:
    """The fields that `show` adds. A machine that cannot be reached leaves them empty. `beside`: as of `Queries.beside`."""
    asked = _Folder(target, run.id)
    asked.broken.update(seen.broken if seen else {})
    attempts = [_attempt(asked, n, seen) for n in range(max(1, begun(run) - ATTEMPTS_SHOWN + 1), begun(run) + 1)]
    files = _files(run, target, attempts, beside)
    told = {
        "evidence": run.evidence,
        "telemetry": seen.telemetry if seen else None,
        "attempts_detail": attempts,
        "files": files,
        "code": asked.json(f"{rundir.CODE}/commit.json"),
        "usage": _usage(run, target),
        "waits_for_input": bool(seen.waits_for_input) if seen and not run.state.final else False,
        "interpreter": _interpreter(run),
        "env_names": _env_names(run, target),
        "spec": run.spec.to_json(),
        "resume": _resume(run, target, asked, attempts) if run.spec.resume != "off" else None,
        "hooks": _hooks(run, target) if run.spec.hooks else None,
        "rehearsal": asked.json(f"{rundir.ATTEMPTS}/{begun(run)}/{rundir.HOOKS}/{REHEARSAL}") if run.spec.hooks and begun(run) else None,
        "engine": asked.json(f"{rundir.ATTEMPTS}/{begun(run)}/{rundir.ENGINE}") if begun(run) else None,
        "training": _training(run, target),
        "trained_nothing": None if files else _trained_nothing(run, target),
        "history": [{**event, "at": iso(event["at"])} for event in history],
        "run_pid": seen.run_pid if seen and not run.state.final else None,
        "ladder": _ladder(run, asked),
        "still": asked.json(f"{rundir.ATTEMPTS}/{begun(run)}/{rundir.STILL}") if run.state is State.RUNNING and begun(run) else None,
    }
    return {**told, "broken_files": asked.broken}


def edited(run: Run, target: Target) -> tuple[list[str], int]:
    """What stands in `resume.edited`, with paths below the run's folder as the user types them. A copy elsewhere is not edited."""
    paths, step = resume.edited(Path(target.run_folder(run.id))) if target.here else ([], 0)
    return [os.path.relpath(path, run.spec.folder) if Path(path).is_relative_to(run.spec.folder) else path for path in paths], step


def refuse_edited(run: Run, target: Target | None, typed: str) -> None:
    """Restarting from scratch puts aside what the run could resume from: it must be asked for. Raises StateError."""
    paths, step = edited(run, target) if target is not None else ([], 0)
    if paths:
        more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
        raise StateError(f"{paths[0]}{more} was edited after the image at step {step:,}; {run.name} can resume only with "
                         "the unedited files.", hint=f"Restore the files, or restart from scratch: stoker start --edited {typed}")


def _resume(run: Run, target: Target, folder: _Folder, attempts: list[dict]) -> dict | None:
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
    return {**state, "state": resume.word(state), "checked": resume.checked(state), "log": parts,
            "sentence": resume.sentence(stands, time.time()), "came_back": resume.came_back(state),
            "began_anew": resume.began_anew(state), "audits": resume.audits(state), "way_back": resume.way_back(stands),
            "dear": resume.dear(stands), "not_taken": resume.not_taken(state), "starts_again": resume.starts_again(stands),
            "edited": edited(run, target)[0], "files": _given_back(run, target, state), "back": _back(run, state)}


def _back(run: Run, state: dict | None) -> str | None:
    """How far a running attempt is on its way back to an image."""
    return resuming((state or {}).get("back"), begun(run)) if run.state is State.RUNNING else None


def _given_back(run: Run, target: Target, state: dict) -> str | None:
    here = Path(target.run_folder(run.id)) if target.here else None
    return resume.given_back(state, here, begun(run), typed_ref(run.name)) if run.state.final else None


def _hooks(run: Run, target: Target) -> dict | None:
    if not target.here or not begun(run):
        return None
    return resume.hooked(Path(target.run_folder(run.id)) / rundir.ATTEMPTS / str(begun(run)), list(run.spec.argv or run.spec.command))


def _training(run: Run, target: Target) -> dict | None:
    if not run.spec.hooks or not target.here or not begun(run):
        return None
    return steps.summary(steps.read(Path(target.run_folder(run.id)) / rundir.ATTEMPTS / str(begun(run))))


def progress(run: Run, target: Target | None) -> dict | None:
    """How far a running training is, for lists; None where that is not known."""
    if run.state is not State.RUNNING or not run.spec.hooks or target is None or not target.here or not begun(run):
        return None
    folder = Path(target.run_folder(run.id))
    back = _back(run, reading.read_json(folder / resume.STATE)) if run.spec.resume != "off" and begun(run) > 1 else None
    if back:
        return {"step": None, "steps_s": None, "done": None, "eta_s": None, "back": back}
    return steps.progress(folder / rundir.ATTEMPTS / str(begun(run)))


def _trained_nothing(run: Run, target: Target) -> str | None:
    """Only of a run that ended well, and left no file and no metric."""
    if not run.spec.hooks or not target.here or run.reason != "exited" or run.exit_code or begun(run) != 1:
        return None
    attempt = Path(target.run_folder(run.id)) / rundir.ATTEMPTS / "1"
    return None if (attempt / rundir.METRICS).exists() else steps.trained_nothing(attempt)


def _ladder(run: Run, folder: _Folder) -> dict | None:
    """Where a stop is: the stage's name, when it began, and how long it lasts at most."""
    if run.state is not State.STOPPING or not begun(run):
        return None
    return (folder.json(f"{rundir.ATTEMPTS}/{begun(run)}/{rundir.HEARTBEAT}") or {}).get("stage")


class _Folder:
    """JSON files of a run folder; after the first failure to reach the machine there are none."""

    def __init__(self, target: Target, run_id: str) -> None:
        self._target, self._run_id = target, run_id
        self._silent = False
        self.broken: dict[str, str] = {}  # name -> why it cannot be used

    def json(self, name: str) -> dict | None:
        if self._silent:
            return None
        try:
            return self._target.load_json(self._run_id, name)
        except StokerError:
            self._silent = True
        except (OSError, reading.Broken) as e:
            self.broken[name] = getattr(e, "strerror", None) or str(e)
        return None


def _attempt(folder: _Folder, number: int, seen: Observation | None) -> dict:
    base = f"{rundir.ATTEMPTS}/{number}"
    exit_ = folder.json(f"{base}/{rundir.EXIT}")
    live = seen if seen is not None and seen.attempt == number else None
    agent = None if exit_ else folder.json(f"{base}/{rundir.AGENT}")
    told = exit_ or {}
    started, ended = told.get("started_at") or (agent or {}).get("started_at"), told.get("ended_at")
    return {
        "attempt": number, "phase": "ended" if exit_ else live.phase if live else "unknown",
        "started_at": iso(started) if started else None, "ended_at": iso(ended) if ended else None,
        "reason": told.get("reason") and known_reason(told["reason"]), "exit_code": exit_code(told),
        "signal_name": told.get("signal_name"), "used_s": told.get("used_s"),
        "out_bytes": told.get("out_bytes", live.out_bytes if live else None),
        "err_bytes": told.get("err_bytes", live.err_bytes if live else None),
        "leftovers": told.get("leftovers"), "gaps": told.get("gaps"), "evidence": told.get("evidence"),
    }


def _files(run: Run, target: Target, attempts: list[dict], beside: Sequence[tuple[str, str, float, float]]) -> list[dict] | None:
    """New and changed files since it first began; None where the folder is on another machine. `beside`: as of `Queries.beside`."""
    if not target.here or not attempts or run.created_at == 0:
        return None if not target.here else []
    folder = Path(target.run_folder(run.id))
    work = folder / rundir.WORK if run.spec.copy else Path(run.spec.folder)
    if not work.is_dir():
        return []
    found = stage.changed_files(work, folder / rundir.CODE, run.created_at, limit=FILES_SHOWN,
                                until=run.ended_at if run.state.final else None)
    others = [own_files.Beside(begun, over, Path(target.run_folder(each)) if where == run.target else None)
              for each, where, begun, over in (() if run.spec.copy else beside)]
    return own_files.tell_apart(found, work, folder, others)


def _usage(run: Run, target: Target) -> dict:
    if not target.here:
        return {}
    size, inodes = cost(Path(target.run_folder(run.id)))
    return {"folder_bytes": size, "folder_files": inodes}


def _interpreter(run: Run) -> str | None:
    program = run.spec.argv[0] if run.spec.argv else ""
    return program if os.path.basename(program).startswith(("python", "pypy")) else None


def _env_names(run: Run, target: Target) -> list[str] | None:
    """Names only: the values never leave the run folder."""
    if not target.here:
        return None
    try:
        data = reading.read_regular(f"{target.run_folder(run.id)}/{rundir.ENV}", ENV_MAX)
    except (OSError, reading.Broken):
        return None
    return sorted(rundir.unpack_env(data))


def cost(folder: Path) -> tuple[int, int]:
    """Bytes on disk and inodes of a folder; links are counted, not followed."""
    size = inodes = 0
    for entry in _walk(folder):
        try:
            info = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        size += info.st_blocks * 512
        inodes += 1
    return size, inodes + (1 if inodes else 0)


def _walk(folder: Path) -> Iterator[os.DirEntry]:
    waiting = [os.fspath(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    yield entry
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue


def machine(target: Target, capacity: Capacity) -> dict:
    """The machine's facts for `top`."""
    return {
        "hostname": socket.gethostname() if target.here else target.config.host, "cpus": capacity.cpus,
        "load": list(os.getloadavg()) if target.here else None,
        "memory": {"total_bytes": capacity.memory_bytes, "available_bytes": capacity.memory_free_bytes},
        "disk": {"total_bytes": capacity.disk_bytes, "free_bytes": capacity.disk_free_bytes, "inodes_free": capacity.inodes_free},
        "gpus": list(capacity.gpus), "slots": target.config.slots,
    }
