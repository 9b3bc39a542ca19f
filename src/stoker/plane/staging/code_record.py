"""Records what the code was when a run began, and tells later which files are new or changed.
Bounded in time, files and bytes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stoker.base import reading, rundir
from stoker.base.config import home
from stoker.base.units import iso
from stoker.plane.staging import git_folder
from stoker.plane.staging.frozen_copy import FrozenInfo

MAX_FILES = 20_000
MAX_IN_FOLDER = 2_000  # a folder with more is data; the rest of it is not listed
RECORD_TIME_S = 0.5  # a run that starts at once waits for this; only git may take it all
_WALK_TIME_S, _HASH_TIME_S = 0.15, 0.22  # counted from the beginning too
HASHED_BYTES = 1_000_000  # a larger file is no code
HASHED_TOTAL = 30_000_000
DIFF_BYTES = 5_000_000
PEEKED_BYTES = 8_000  # a zero byte in these: no text, as for git
CODE = frozenset(
    (
        ".py .pyx .pyi .ipynb .sh .bash .sbatch .slurm .yaml .yml .toml .json .jsonnet .cfg .ini .conf "
        ".gin .txt .md .rst "
        ".c .h .cc .cpp .hpp .cu .cuh .rs .go .js .ts .jl .lua .r"
    ).split()
)
_PATCHED = CODE - {".json", ".txt", ".ipynb"}  # new files of these kinds go into the diff whole
_CUT = {"time": "git took too long", "size": "the diff is too large"}  # by git_folder's `cut`
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")


def record_code(
    folder: Path, code_dir: Path, entry: Sequence[str] | None = None, copied: FrozenInfo | None = None
) -> dict:
    """Write manifest.json, commit.json and diff.patch of `folder` into `code_dir`; returns the summary in
    commit.json.
    entry: the most important files (the script), hashed first. copied: a frozen copy, which the manifest
    then describes instead. Takes at most RECORD_TIME_S; "cut" in
    the summary names what was skipped. Unreadable files are skipped without an error."""
    folder = Path(os.path.abspath(folder))
    begin = time.monotonic()
    asked = _ask_git(folder)
    seen = _walked(folder, begin + _WALK_TIME_S) if copied is None else _copied(copied)
    hashes, hash_cut = _hash(folder, seen, entry or (), begin + _HASH_TIME_S)
    summary, diff = _git_summary(folder, asked, begin + RECORD_TIME_S)
    untracked = summary.pop("untracked_code", None)
    diff += _new_files_patch(
        folder, _code_files(seen.files) if untracked is None else untracked, DIFF_BYTES - len(diff)
    )
    cut = [c for c in (seen.cut, hash_cut, summary.pop("cut", "")) if c]
    summary |= {
        "folder": os.fspath(folder),
        "recorded_at": iso(time.time()),
        "files": len(seen.files),
        "hashed": len(hashes),
        "diff_bytes": len(diff),
        "cut": cut,
    }
    manifest = {
        "complete": not seen.cut,
        "bulk": seen.bulk,
        "cut": cut,
        "folder": os.fspath(folder),
        "files": [_line(path, *about, hashes.get(path)) for path, about in seen.files.items()],
    }
    code_dir.mkdir(parents=True, exist_ok=True)
    # Not fsynced: nobody reads it before the run folder takes its place, and a record is not worth three
    # waits for the disk at each run.
    (code_dir / rundir.MANIFEST).write_text(json.dumps(manifest) + "\n", "ascii")
    (code_dir / rundir.DIFF).write_bytes(diff)
    (code_dir / rundir.COMMIT).write_text(json.dumps(summary) + "\n", "ascii")
    return summary


def _line(path: str, size: int, mtime_ns: int, sha256: str | None) -> dict:
    line = {"path": reading.spelled(path), "size": size, "mtime_ns": mtime_ns}
    return {**line, "sha256": sha256} if sha256 else line


def changed_files(
    folder: Path, code_dir: Path, since: float, limit: int = 200, until: float | None = None
) -> list[dict]:
    """Files of `folder` that differ from the record in `code_dir`: {"path", "size", "kind": "new"|"changed",
    "mtime"}, newest first.
    since: Unix time of the start, used for files that the record does not cover. until: Unix time of the
    end; files written later do not count."""
    return reading.changed_files(
        os.path.abspath(folder), code_dir, home().path, since=since, until=until, limit=limit
    )


# --- walking and hashing
# -------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class _Seen:
    """The files that are recorded: path -> (size, mtime_ns), where their content is, and the hashes that are
    known before it is read."""

    files: dict[str, tuple[int, int]]
    place: Path
    hashes: dict[str, str] = field(default_factory=dict)
    bulk: list[str] = field(default_factory=list)
    cut: str = ""


def _walked(folder: Path, deadline: float) -> _Seen:
    listing = reading.Listing(os.fspath(folder), os.fspath(home().path), MAX_IN_FOLDER)
    found = listing.walk(deadline, MAX_FILES)
    files = {path: (info.st_size, info.st_mtime_ns) for path, info in found.files.items()}
    return _Seen(files, folder, bulk=found.bulk, cut=found.cut)


def _copied(copy: FrozenInfo) -> _Seen:
    files = {entry[0]: (entry[1], entry[2]) for entry in copy.listed if len(entry) == 3}
    return _Seen(files, copy.place, copy.hashes)


def _code_files(files: Iterable[str]) -> list[str]:
    return [p for p in files if os.path.splitext(p)[1].lower() in _PATCHED]


def _hash(folder: Path, seen: _Seen, entry: Sequence[str], deadline: float) -> tuple[dict[str, str], str]:
    """({path: sha256} of code-like files, and of others that are known; why not of all code)."""
    first = [p for p in (os.path.relpath(os.path.join(folder, e), folder) for e in entry) if p in seen.files]
    rest = (p for p in seen.files if os.path.splitext(p)[1].lower() in CODE and p not in first)
    hashes = dict(seen.hashes)
    total = 0
    for path in (*first, *rest):
        size = seen.files[path][0]
        if path in hashes or size > HASHED_BYTES:
            continue
        total += size
        if total > HASHED_TOTAL or time.monotonic() > deadline:
            return hashes, f"only {len(hashes)} files were hashed"
        try:
            with open(os.path.join(seen.place, path), "rb") as f:
                data = f.read(size + 1)
        except OSError:
            continue
        if len(data) == size:
            hashes[path] = hashlib.sha256(data).hexdigest()
    return hashes, ""


# --- git
# ------------------------------------------------------------------------------------------------------------

def _ask_git(folder: Path) -> dict[str, git_folder.Asked] | None:
    """Start all questions at once; None where there is no repository or no git."""
    if not git_folder.in_repository(folder):
        return None
    questions = {
        "head": ("rev-parse", "--verify", "-q", "HEAD"),
        "branch": ("symbolic-ref", "-q", "--short", "HEAD"),
        "remote": ("config", "--get-regexp", r"^remote\..*\.url$"),
        "diff": (
            "diff",
            "--binary",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            "--no-renames",
            "--relative",
            "HEAD",
        ),
        "new": ("ls-files", "-z", "--others", "--exclude-standard"),
    }
    asked = {}
    for name, args in questions.items():
        one = git_folder.ask(folder, *args)
        if one is None:
            return None
        asked[name] = one
    return asked


def _git_summary(
    folder: Path, asked: dict[str, git_folder.Asked] | None, deadline: float
) -> tuple[dict, bytes]:
    """(commit, branch, dirty, remote, new files; the diff against HEAD)."""
    if asked is None:
        return {"commit": None, "branch": None, "dirty": None, "remote": None}, b""
    deadline = max(deadline, time.monotonic() + 0.1)  # git began before the walk did
    caps = {"diff": DIFF_BYTES}
    said = {name: one.answer(deadline, caps.get(name)) for name, one in asked.items()}
    diff, why = said["diff"], asked["diff"].cut
    cut = f"the diff is incomplete ({_CUT[why]})" if why else ""
    if why:
        # whole files only, so that what is there can be applied
        diff = diff[:diff.rfind(b"\ndiff --git ") + 1]
    new = git_folder.paths(said["new"])
    head = said["head"].decode().strip() or None
    summary = {"commit": head, "branch": said["branch"].decode("utf-8", "replace").strip() or None,
               "dirty": bool(said["diff"] or new) if head else True, "new_files": len(new),
               "remote": _remote(said["remote"].decode("utf-8", "replace")), "cut": cut,
               "untracked_code": [p for p in new if os.path.splitext(p)[1].lower() in _PATCHED]}
    return summary, diff


def _remote(text: str) -> str | None:
    """The address of origin, else of the first remote, without names and keys in it."""
    urls = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    url = urls.get("remote.origin.url") or next(iter(urls.values()), None)
    return _CREDENTIALS.sub("", url.strip()) if url else None


def _new_files_patch(folder: Path, paths: Sequence[str], room: int) -> bytes:
    """A patch that makes the files in `paths`, as far as they are text and fit into `room` bytes."""
    parts = []
    for path in sorted(paths):
        part = _new_file_patch(folder, path, room)
        if part and len(part) <= room:
            parts.append(part)
            room -= len(part)
    return b"".join(parts)


def _new_file_patch(folder: Path, path: str, room: int) -> bytes:
    """The patch that makes one file; empty for a file that is no text, or surely does not fit."""
    try:
        info = os.lstat(os.path.join(folder, path))
        if (
            not stat.S_ISREG(info.st_mode)
            or not 0 < info.st_size <= min(HASHED_BYTES, room)
            or any(c in path for c in '\n\t"\\')
        ):
            return b""
        with open(os.path.join(folder, path), "rb") as f:
            data = f.read(PEEKED_BYTES)
            if b"\0" not in data:
                data += f.read(HASHED_BYTES + 1)
    except OSError:
        return b""
    if b"\0" in data:
        return b""
    lines = data.split(b"\n")
    ends = lines[-1] == b""
    lines = lines[:-1] if ends else lines
    name, mode = os.fsencode(path), b"100755" if info.st_mode & 0o100 else b"100644"
    head = b"diff --git a/%b b/%b\nnew file mode %b\n--- /dev/null\n+++ b/%b\n@@ -0,0 +1,%d @@\n" % (
        name,
        name,
        mode,
        name,
        len(lines),
    )
    return (
        head
        + b"".join(b"+" + line + b"\n" for line in lines)
        + (b"" if ends else b"\\ No newline at end of file\n")
    )


