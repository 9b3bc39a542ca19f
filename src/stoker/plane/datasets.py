"""Data that runs read on another machine: sent there once, linked into the copy of a run,
checked again at each start."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from stoker.base import rundir
from stoker.base.errors import InvalidSpec, NotFound
from stoker.base.spec import Spec
from stoker.hosts import parcel
from stoker.hosts.base import Progress, silent
from stoker.plane.targets import Target

# in what is kept of a run here: name -> the parcel that it began with, and where it lies there
SENT = "data.json"
HASHES = "hashes"


def check(spec: Spec, here: bool) -> None:
    """Raises InvalidSpec or NotFound if a run cannot use this data."""
    for name, place in spec.data.items():
        clean = os.path.normpath(name)
        if not name or os.path.isabs(name) or clean.startswith("..") or clean in (".", ""):
            raise InvalidSpec(
                (
                    f"'{name}' is not a valid path for data: the path must be relative and inside the "
                    "working folder."
                ),
                hint=f"--data data={place}",
            )
        if not os.path.isdir(place):
            raise NotFound(f"--data: there is no folder {place}.", hint="Check the path.")
        if (
            here
            and not spec.copy
            and os.path.realpath(os.path.join(spec.folder, name)) != os.path.realpath(place)
        ):
            raise InvalidSpec(
                (
                    f"The data '{name}' is at {place}, but a run on this machine looks for the data in the "
                    "working folder."
                ),
                hint=f"Add --copy, or make a link: ln -s {place} {name}",
            )
    for name in spec.data_rw:
        if name not in spec.data:
            raise InvalidSpec(
                f"`data_rw` names '{name}', but `data` has no entry '{name}'.",
                fields=["data_rw"],
            )


def ready(target: Target, spec: Spec, hashes: Path, tell: Progress = silent) -> dict[str, str]:
    """Make sure that all data of the run is on its machine, as at the start of the run. Returns name -> path
    there. Raises StokerError.
    hashes: a folder that caches hashes of local files, by size and times."""
    if target.here or not spec.data:
        return {}
    note = target.kept / spec.id / SENT
    before = rundir.read_json(note) or {}
    found: dict[str, dict] = {}
    for number, (name, place) in enumerate(spec.data.items()):
        with _Hashes(hashes, place) as known:
            sent, at = target.backend.keep_data(
                Path(place), known, tell, (before.get(name) or {}).get("parcel") or ""
            )
        found[name] = {"parcel": sent, "at": at, "number": number}
    note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    rundir.write_whole(note, json.dumps(found).encode("ascii"), 0o600)
    return {
        name: f"../data/{told['number']}" if name in spec.data_rw else told["at"]
        for name, told in found.items()
    }


def link(work: Path, places: dict[str, str]) -> None:
    """Link data into a copy, under its relative path. Can be repeated."""
    for name, place in places.items():
        path, up = work / name, len(Path(name).parts) - 1
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to("../" * up + place if place.startswith("../") else place)


def copies(target: Target, spec: Spec) -> None:
    """Make the writable copies of data in the run folder on the machine. Can be repeated."""
    told = rundir.read_json(target.kept / spec.id / SENT) or {}
    for name in spec.data_rw if not target.here else ():
        if name in told:
            target.backend.copy_data(spec.id, told[name]["number"], told[name]["at"])


class _Hashes:
    """Hashes of the files of one folder, remembered with size, times and inode,
    so that unchanged files are read once."""

    def __init__(self, folder: Path, place: str) -> None:
        self._file = folder / f"{parcel.name_of([[place]])[:32]}.json"
        self._known: dict[str, list] = {}
        self._seen: dict[str, list] = {}

    def __enter__(self) -> Callable[[bytes, os.stat_result], str]:
        self._known = rundir.read_json(self._file) or {}
        return self._hash

    def _hash(self, path: bytes, seen: os.stat_result) -> str:
        name, now = os.fsdecode(path), [seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino]
        before = self._known.get(name)
        sha = (
            before[4]
            if isinstance(before, list) and len(before) == 5 and before[:4] == now
            else parcel.hash_file(path)
        )
        self._seen[name] = [*now, sha]
        return sha

    def __exit__(self, *exc: object) -> None:
        if self._seen and self._seen != self._known:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            rundir.write_whole(self._file, json.dumps(self._seen).encode("ascii"), 0o600)
