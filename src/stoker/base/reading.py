"""How files of run folders are read: regular files only, a bounded number of bytes, and fields of the kinds
that a table names.

A run may write anything into its own folder.
What it writes there must not stop, blind or fill the memory of those who read.
The agent's own functions do the work (docs/decisions/012-one-file-that-reads-and-deletes.md);
here is the table for the files that it does not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from stoker.agent import looking, reading, words
from stoker.agent.looking import Listing, edited_files, folder_cost, is_environment, spelled
from stoker.agent.reading import TIME, Broken, open_regular, read_regular
from stoker.agent.words import JUNK

__all__ = [
    "JUNK",
    "Broken",
    "Listing",
    "changed_files",
    "edited_files",
    "folder_cost",
    "is_environment",
    "limit_of",
    "load_json",
    "open_regular",
    "parse_json",
    "parse_lines",
    "read_end",
    "read_json",
    "read_lines",
    "read_regular",
    "spelled",
]

_IMAGE = {
    "n": int,
    "step": int,
    "at": TIME,
    "every_s": float,
    "every_steps": int,
    "cost": float,
    "bytes": int,
    "setup_s": float,
    "back_s": float,
    "trained_s": float,
}
_RESUMED = {
    "attempt": int,
    "step": int,
    "seconds": float,
    "lost_steps": int,
    "values_equal": int,
    "put_back": [str],
    "grade": str,
}
FILES = {  # name -> kinds of the fields that are looked at, as in the agent
    "state.json": {
        "state": str,
        "reason": str,
        "step": int,
        "image": _IMAGE,
        "tried": [{"image": int, "why": str}],
        "resumed": _RESUMED,
        "back": {"attempt": int, "step": int, "of": int},
        "lives": [{"attempt": int, "from": int, "out_bytes": int}],
        "points_passed": {"*": int},
        "not_audited": str,
        "not_given_back": {"attempt": int, "files": [str]},
        "given_back": [{"attempt": int, "aside": int}],
        "again": [{"what": str, "where": str}],
    },
    "manifest.json": reading.MANIFEST_KINDS,
    "commit.json": {"commit": str, "dirty": bool},
    "rehearsal.json": {"verdict": str, "lines": [str], "warnings": [str], "not_checked": [str]},
}
LINES = {
    "written.jsonl": {"path": str},
    "telemetry.jsonl": reading.SAMPLE,
    "processes.jsonl": {
        "pid": int,
        "torch": str,
        "why": str,
        "other": str,
        "settings": {"applied": [str], "left": {"*": str}},
        "batches": int,
        "backward": int,
    },
    "steps.jsonl": {
        "pid": int,
        "rank": int,
        "step": int,
        "at": TIME,
        "s": float,
        "steps": float,
        "samples": float,
        "batches": float,
        "setup_s": float,
        "p50_ms": float,
        "p90_ms": float,
        "max_ms": float,
        "ms": {"*": float},
        "gpu_ms": {"*": float},
        "epochs": [{"s": float, "step": int}],
        "batch": int,
        "of": int,
        "done": float,
    },
}


def load_json(path: Path | str, kinds: object = None) -> dict:
    """Read a JSON object from a file and check the types of its fields (by default those that FILES lists
    for its name). Raises FileNotFoundError, OSError, or Broken with half a sentence if the content cannot
    be used."""
    name = os.path.basename(os.fspath(path))
    return reading.load_json(os.fspath(path), FILES.get(name) if kinds is None else kinds, limit_of(name))


def limit_of(name: str) -> int:
    """Largest number of bytes that are read of a JSON file of this name."""
    return words.MANIFEST_MAX if os.path.basename(name) == "manifest.json" else words.JSON_MAX


def parse_json(data: bytes, name: str) -> dict:
    """Parse a JSON object from the bytes of a file of this name. Raises Broken."""
    name = os.path.basename(name)
    return reading.parse_json(data, FILES.get(name) or reading.FILES.get(name, dict))


def read_json(path: Path | str, kinds: object = None) -> dict | None:
    """Read a JSON object from a file, as `load_json`; None if it is missing, incomplete or invalid."""
    try:
        return load_json(path, kinds)
    except (OSError, Broken):
        return None


def read_end(path: Path | str, limit: int) -> bytes:
    """The last bytes of a file, at most `limit`; empty if it is missing or not a regular file."""
    return reading.read_tail(os.fspath(path), limit)


def read_lines(path: Path | str, limit: int, kinds: object = None) -> Iterator[dict]:
    """The valid lines among the last bytes of a JSON lines file, checked against the types that LINES
    lists for its name."""
    return parse_lines(read_end(path, limit), os.fspath(path), kinds)


def parse_lines(data: bytes, name: str, kinds: object = None) -> Iterator[dict]:
    """The valid lines among the last bytes of a file of this name."""
    wanted = LINES.get(os.path.basename(name), dict) if kinds is None else kinds
    for line in data.splitlines():
        try:
            yield reading.parse_json(line, wanted)
        except Broken:  # torn, or cut by where we began
            continue


def changed_files(
    folder: Path | str,
    code_dir: Path | str,
    left_out: Path | str,
    *,
    since: float,
    until: float | None,
    limit: int,
) -> list[dict]:
    """Files of `folder` that are new or changed since the record in `code_dir`, in the form of the agent's
    `changed_files`."""
    manifest = os.path.join(code_dir, words.MANIFEST)
    return looking.changed_files(
        os.fspath(folder), manifest, os.fspath(left_out), since=since, until=until, limit=limit
    )
