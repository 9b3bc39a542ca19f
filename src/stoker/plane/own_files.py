"""Which files of its folder a run wrote: those that its processes were seen to open for writing, by the hooks or by the agent."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from stoker.base import reading, rundir

CLOCK_S = 2.0  # clocks of file systems are coarse
READ_MAX = 4 << 20  # bytes of one attempt's record
OTHERS_MAX = 50  # runs in the same folder whose records are read


class Beside(NamedTuple):
    """Another run that worked in the folder meanwhile. `begun`, `over`: Unix seconds; inf while it goes on. `record`: its run folder, where
    that can be read here."""

    begun: float
    over: float
    record: Path | None


def tell_apart(found: Sequence[dict], work: Path, record: Path, beside: Sequence[Beside]) -> list[dict]:
    """The files in `found` (as of `stage.changed_files`) that may be this run's.

    `uncertain`: its processes were not seen to write the file, and either another run worked in the folder then, or this run was seen to
    write other files.
    """
    own = written([record])
    others = written([each.record for each in beside[:OTHERS_MAX] if each.record is not None]) - own
    top = os.path.realpath(work)
    told = []
    for file in found:
        path = os.path.join(top, file["path"])
        if path in others:
            continue
        together = any(each.begun - CLOCK_S <= file["mtime"] <= each.over + CLOCK_S for each in beside)
        told.append({"path": file["path"], "bytes": file["size"], "change": file["kind"],
                     "uncertain": path not in own and (bool(own) or together)})
    return told


def written(records: Iterable[Path]) -> set[str]:
    """The files that the processes of these runs were seen to open for writing, without symbolic links, as `stage.changed_files` spells
    them."""
    folders: dict[str, str] = {}
    found = set()
    for record in records:
        run = rundir.RunDir(record)
        for number in run.attempts():
            for place in (run.attempt(number), run.attempt(number) / rundir.HOOKS):
                for line in reading.read_lines(place / rundir.WRITTEN, READ_MAX):
                    found.add(_spelled(_without_links(str(line.get("path")), folders)))
    return found


def _without_links(path: str, folders: dict[str, str]) -> str:
    folder, name = os.path.split(path)
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    path = os.path.join(folders[folder], name)
    return os.path.realpath(path) if os.path.islink(path) else path


def _spelled(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
