"""What a machine has and lacks for a run, and what a run would send there:
asked before anything is sent or started."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from stoker.backends import pythons
from stoker.base.config import Config
from stoker.base.errors import StokerError
from stoker.base.spec import Spec
from stoker.hosts import parcel
from stoker.plane.capacity import Usage
from stoker.plane.staging import stage
from stoker.plane.targets import Target

LARGEST = 5
LOOK_S = 180.0  # for all interpreters of a machine: each is started once
IMPORTS_S = 60.0


def facts(target: Target, look: bool = False, modules: Sequence[str] | None = None, python: str = "") -> dict:
    """Facts about a machine. look: adds `pythons`, all interpreters found there. modules: adds
    `interpreter`, which runs scripts, and which of these modules each interpreter `lacks`. Raises
    StokerError."""
    capacity, room = target.capacity(max_age_s=2.0), target.room(ask=True)
    told = {
        **dataclasses.asdict(capacity),
        "target": target.name,
        "slots": room.slots,
        "chosen_python": target.config.python,
    }
    if look:
        program = Path(pythons.__file__).read_text("utf-8")
        told["pythons"] = target.backend.ask(program, *(modules or ()), timeout_s=LOOK_S)
    if modules is not None:
        wanted = python or target.config.python or "python3"
        try:
            told["interpreter"] = target.backend.ask(
                pythons.SHOW, *modules, python=wanted, timeout_s=IMPORTS_S
            )
        except StokerError as e:
            if getattr(e, "retry", False):
                raise
            told["interpreter"] = {"executable": wanted, "error": e.message, "lacks": []}
    return told


def datasets_there(target: Target, remove: Sequence[str] = ()) -> list[dict]:
    """The datasets on a machine; deletes those with these ids or labels. Raises StokerError."""
    if target.here:
        return []
    found = target.backend.data()
    wanted = [
        each["id"] for each in found if each["id"] in remove or (each["label"] and each["label"] in remove)
    ]
    return target.backend.data(wanted) if wanted else found


def used(usage: Usage, told: dict) -> dict:
    """Resources of the machine that are in use."""
    known = {gpu.get("uuid") for gpu in told["gpus"]}
    return {
        "slots_used": usage.slots,
        "gpus_used": {uuid: name for uuid, name in usage.gpus.items() if uuid in known},
    }


def preview(asked: Spec, target: Target, config: Config) -> dict:
    """What a run would send: `{"files", "bytes", "largest", "left_out": {path: why}, "there", "send"}`.
    Raises StokerError."""
    told = {
        "dry_run": True,
        "target": target.name,
        "folder": asked.folder,
        "command": list(asked.command),
        "mounts": dict(asked.mounts),
        "data": dict(asked.data),
        "in_place": target.here and not asked.copy,
    }
    if told["in_place"]:
        return told
    folder = Path(asked.folder)
    plan = stage.plan(folder, config.copy_limit_bytes, tuple(map(os.path.normpath, asked.data)))
    sizes = {path: info.st_size for path, info in plan.files}
    entries = [
        [parcel.FILE, path, 0, 0, info.st_size, parcel.hash_file(folder / path)] for path, info in plan.files
    ]
    missing = {sha for sha, _came in target.backend.missing(entries)}
    first, send = set(), []
    for entry in entries:
        if entry[5] in missing and entry[5] not in first:
            first.add(entry[5])
            send.append(entry)
    largest = sorted(sizes.items(), key=lambda each: -each[1])[:LARGEST]
    count, whole, sent = len(sizes), sum(sizes.values()), sum(entry[4] for entry in send)
    return {
        **told,
        "files": count,
        "bytes": whole,
        "largest": [{"path": path, "bytes": size} for path, size in largest],
        "left_out": plan.left_out,
        "warnings": plan.skipped,
        "there": {"files": count - len(send), "bytes": whole - sent},
        "send": {"files": len(send), "bytes": sent},
    }
