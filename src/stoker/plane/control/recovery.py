"""Finds runs again from their folders when the database was lost:
runs/*/ of this machine, the spool, and what lives on other machines.

Deletes nothing.

A run that had not begun is recovered as failed (`start_failed`), and does not start until somebody starts
it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from stoker.backends.base import Observation
from stoker.base import rundir
from stoker.base.errors import StokerError
from stoker.base.rundir import RunDir
from stoker.base.spec import Limits, Spec
from stoker.base.state import REASONS, State, known_reason
from stoker.base.units import from_iso
from stoker.plane import names
from stoker.plane.control.lifecycle import evidence_of, exit_code
from stoker.plane.record import Run, command_key, folder_key
from stoker.plane.run_folder import RunFolder, whole
from stoker.plane.store.queries import Queries
from stoker.plane.targets import Target

log = logging.getLogger(__name__)


def recover(q: Queries, roots: dict[str, Path], spool: Path) -> list[Run]:
    """Write a row for each readable run folder; returns the runs. `roots`: target on this machine -> the
    folder that contains runs/."""
    found: dict[str, Run] = {}
    for target, root in roots.items():
        for folder in _folders(root / "runs"):
            run = _one(folder, target)
            if run is not None:
                found.setdefault(run.id, run)
    for folder in _folders(spool):
        run = _one(folder, None)
        if run is not None and run.id not in found:
            found[run.id] = run
    for run in sorted(found.values(), key=lambda r: (r.created_at, r.id)):
        insert_named(q, run)
    return list(found.values())


def found_far(target: Target, seen: Observation) -> Run | None:
    """A run that is active on another machine, if it was started there under this target's name; None for
    runs of other users."""
    if not target.is_ours(seen):
        return None
    run = described(target, seen)
    return run if run is not None and run.spec.target == target.name else None


def described(target: Target, seen: Observation) -> Run | None:
    """A run on another machine as a row, whoever owns it; None if it cannot be read or has not begun."""
    try:
        folder = RunFolder.ask(target.backend, seen.id, [whole(rundir.SPEC), whole(rundir.LIMITS)])
        spec, limits = (
            Spec.from_json(folder.json(rundir.SPEC) or {}),
            Limits.from_json(folder.json(rundir.LIMITS) or {}),
        )
    except (StokerError, TypeError, ValueError):
        return None
    if spec.id != seen.id or not spec.command or not seen.attempt:
        return None
    run = _row(spec, target.name, limits, time.time(), here=False)
    return run.with_(
        state=State.STARTING,
        attempt=seen.attempt,
        first_attempt=seen.attempt,
        limits_written=limits.seq,
        started_at=seen.started_at or run.created_at,
    )


def insert_named(q: Queries, run: Run) -> None:
    """Write the row, with another name if its name is already used."""
    name, number = run.name, 1
    while q.by_name(name):
        number += 1
        name = names.numbered(run.name, number)
    q.insert(run.with_(name=name, name_stem=run.name, name_number=number))


def _folders(place: Path) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(place), key=lambda e: e.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
            yield Path(entry.path)


def _one(folder: Path, target: str | None) -> Run | None:
    """`_read`; a folder that it does not understand is left alone, and keeps nobody from the others."""
    try:
        return _read(folder, target)
    except Exception:
        log.exception("%s was not found again", folder)
        return None


def _read(folder: Path, target: str | None) -> Run | None:
    """The run in a folder; None when its spec cannot be read. `target` None: it lies in the spool."""
    body = rundir.read_json(folder / rundir.SPEC)
    try:
        spec = Spec.from_json(body or {})
        if not body or spec.id != folder.name or not spec.command:
            return None
        limits = Limits.from_json(rundir.read_json(folder / rundir.LIMITS) or {})
        created = _created(spec, folder)
    except (StokerError, OSError, TypeError, ValueError):
        return None
    here = target is not None
    run = _row(spec, target or spec.target, limits, created, here=here)
    attempts = RunDir(folder).attempts() if here else []
    if not attempts:
        return _not_begun(run)
    return _begun(run, RunDir(folder), attempts)


def _row(spec: Spec, target: str, limits: Limits, created: float, *, here: bool) -> Run:
    return Run(
        id=spec.id,
        name=spec.name or names.stem(spec.command),
        spec=spec,
        target=target,
        created_at=created,
        queued_at=created,
        priority=spec.priority,
        gpus=spec.gpus,
        slots=spec.slots,
        limits=limits,
        limits_written=limits.seq if here else 0,
        fingerprint=spec.with_(retry_reasons=()).fingerprint(),
        folder_hash=folder_key(spec.folder),
        command_hash=command_key(spec.command),
        in_place=not spec.copy and here,
        reachability="ok" if here else "unknown",
        warnings=("This run was recovered from the run folder after the database was lost.",),
    )


def _not_begun(run: Run) -> Run:
    """It had waited, or was stopped while it waited: nobody can say. It is not started unasked."""
    evidence = {"detail": "the database was lost while the run was waiting"}
    return run.with_(
        state=State.FAILED, reason="start_failed", attempt=0, ended_at=time.time(), evidence=evidence
    )


def _begun(run: Run, folder: RunDir, attempts: list[int]) -> Run:
    newest = attempts[-1]
    ends = [rundir.read_json(folder.attempt(n) / rundir.EXIT) for n in attempts]
    used = sum((end or {}).get("used_s") or 0.0 for end in ends)
    exit_ = ends[-1]
    agent = rundir.read_json(folder.attempt(newest) / rundir.AGENT) or {}
    run = run.with_(
        attempt=newest,
        first_attempt=newest,
        used_s=used,
        started_at=agent.get("started_at") or run.created_at,
    )
    if exit_ is None or exit_.get("restart"):
        return run.with_(state=State.STARTING)  # the reconciler looks at it next
    reason = known_reason(exit_.get("reason"))
    state = REASONS[reason].state if reason in REASONS else State.FAILED
    return run.with_(
        state=state,
        reason=reason,
        exit_code=exit_code(exit_),
        ended_at=exit_.get("ended_at") or time.time(),
        evidence=evidence_of(exit_),
    )


def _created(spec: Spec, folder: Path) -> float:
    try:
        return from_iso(spec.created_at)
    except ValueError:
        return folder.stat().st_mtime
