"""Checkpoints on disk: complete or absent.

A checkpoint is a folder `step-000000123` with `state.json`, `tensors.safetensors` and `manifest.json` (size
and SHA-256 of both). The folder is written under another name, synced and renamed;
then the file `latest` names the folder.
A folder whose manifest does not match is skipped and reported.
After a kill before that write, `latest` names an older folder;
a resume finds the newest folder itself and corrects `latest`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file

from stoker.base import crash
from stoker.base.rundir import write_whole
from stoker.engine import safefile

STATE, TENSORS, MANIFEST, LATEST = "state.json", "tensors.safetensors", "manifest.json", "latest"
FORMAT = 1


@dataclass
class Saved:
    """A checkpoint in memory. doc: the JSON document; tensors: the tensors that the document refers to."""

    path: Path
    doc: dict
    tensors: dict[str, torch.Tensor]

    @property
    def step(self) -> int:
        return self.doc["step"]


def _name(step: int) -> str:
    return f"step-{step:09d}"


def _folders(root: Path) -> list[Path]:
    """Complete or torn, the newest first."""
    try:
        found = [p for p in root.iterdir() if p.name.startswith("step-") and p.name[5:].isdigit()]
    except FileNotFoundError:
        return []
    return sorted(found, key=lambda p: -int(p.name[5:]))


def following(root: Path) -> int:
    """A step number larger than the step of every checkpoint in the folder."""
    return 1 + max((int(p.name[5:]) for p in _folders(root)), default=0)


def write(root: Path, doc: dict, tensors: dict[str, torch.Tensor]) -> Path:
    """Write one checkpoint and point `latest` at it. A folder of the same step is replaced.
    Raises OSError; older checkpoints are then unchanged.
    """
    final = root / _name(doc["step"])
    temp = root / f"{final.name}.tmp-{os.getpid()}"
    shutil.rmtree(temp, ignore_errors=True)
    temp.mkdir(parents=True)
    try:
        entries = {TENSORS: safefile.write(temp / TENSORS, tensors)}
        crash.point("checkpoint-tensors")
        entries[STATE] = _write_bytes(temp / STATE, json.dumps(doc).encode())
        crash.point("checkpoint-state")
        _write_bytes(
            temp / MANIFEST,
            json.dumps({"format": FORMAT, "step": doc["step"], "files": entries}, indent=1).encode(),
        )
        _sync(temp)
        crash.point("checkpoint-manifest")
        if final.exists():  # the same step again: a torn one, or a save after an end without a step between
            os.rename(final, root / f"{final.name}.replaced-{os.getpid()}")
            crash.point("checkpoint-replaced")
        os.rename(temp, final)
        _sync(root)
        crash.point("checkpoint-renamed")
    except BaseException:
        shutil.rmtree(temp, ignore_errors=True)
        raise
    shutil.rmtree(root / f"{final.name}.replaced-{os.getpid()}", ignore_errors=True)
    write_whole(root / LATEST, f"{final.name}\n".encode())
    crash.point("checkpoint-latest")
    return final


def correct_latest(saved: Saved | None) -> None:
    """Let `latest` name the newest complete checkpoint, which was just read.
    Only the owner of the folder calls this."""
    if saved is None:
        return
    path = saved.path.with_name(LATEST)
    name = f"{saved.path.name}\n".encode()
    with contextlib.suppress(OSError):  # a folder that can only be read is read all the same
        if not path.exists() or path.read_bytes() != name:
            write_whole(path, name)


def _write_bytes(path: Path, data: bytes) -> dict[str, object]:
    file = safefile.Writer(path)
    try:
        file.write(data)
    except BaseException:
        file.abandon()
        raise
    return file.close()


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def fault(folder: Path) -> str | None:
    """Why a checkpoint is not complete; None if it is complete. Reads every byte."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except OSError:
        return "no manifest"
    except ValueError:
        return "its manifest is damaged"
    if manifest.get("format") != FORMAT:
        return f"unknown format {manifest.get('format')!r}"
    for name in (STATE, TENSORS):
        entry = manifest["files"].get(name, {})
        try:
            if os.path.getsize(folder / name) != entry.get("bytes"):
                return f"{name} has a different size than in the manifest"
            if safefile.sha256(folder / name) != entry.get("sha256"):
                return f"{name} is damaged"
        except OSError as e:
            return f"{name} cannot be read ({e.strerror})"
    return None


def newest(root: Path) -> tuple[Saved | None, list[str]]:
    """Read the newest complete checkpoint. Returns it,
    and a sentence for each damaged checkpoint that was skipped."""
    skipped: list[str] = []
    _put_back_replaced(root)
    for folder in _folders(root):
        why = fault(folder)
        if why is None:
            doc = json.loads((folder / STATE).read_bytes())
            return Saved(folder, doc, load_file(folder / TENSORS)), skipped
        skipped.append(f"{folder} skipped: {why}")
    return None, skipped


def _put_back_replaced(root: Path) -> None:
    """A kill between the two renames of a replacement leaves the old folder under a longer name."""
    for left in root.glob("step-*.replaced-*"):
        final = root / left.name.split(".")[0]
        if final.exists():
            shutil.rmtree(left, ignore_errors=True)
        else:
            os.rename(left, final)


def remove_unfinished(root: Path) -> int:
    """Remove what a kill during a save left behind; only the owner of the folder calls this.
    Returns the number of folders removed."""
    left = list(root.glob("step-*.tmp-*"))
    for folder in left:
        shutil.rmtree(folder, ignore_errors=True)
    return len(left)


def prune(root: Path, keep: int, best: int | None) -> None:
    """Remove all but the newest `keep` checkpoints and the best checkpoint (a step).
    Folders newer than `latest` are damaged and do not count."""
    latest = (root / LATEST).read_text().strip()
    whole = [folder for folder in _folders(root) if int(folder.name[5:]) <= int(latest[5:])]
    for folder in whole[keep:]:
        if int(folder.name[5:]) != best:
            shutil.rmtree(folder, ignore_errors=True)
