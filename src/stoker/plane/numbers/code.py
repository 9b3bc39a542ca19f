"""The difference between the code of two runs, out of what was recorded when they began:
manifest, commit, diff, frozen copy.

A file's text is shown only if its hash is the recorded one.
What cannot be found again is named, without text.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from stoker.plane.staging import git_folder

FILES_MAX = 500  # that are shown
FILE_MAX = 1_000_000  # bytes of one; a larger one has no recorded hash
TEXT_MAX = 5_000_000  # characters of all differences
GIT_S = 20.0  # for all questions to git
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_HUNK = re.compile(rb"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")
_RESULTS = (".json", ".txt")  # a new one is rather written by a run than code: named only


class Recorded:
    """The recorded code of one run. read: returns the first bytes of a file of the run folder, None if it
    is missing."""

    def __init__(
        self,
        manifest: bytes | None,
        commit: bytes | None,
        diff: bytes | None,
        read: Callable[[str], bytes | None],
    ) -> None:
        told, summary = _object(manifest), _object(commit)
        listed = told.get("files")
        self.known = bool(told)
        self.cut = [str(each) for each in told.get("cut") or ()] if isinstance(told.get("cut"), list) else []
        self.hashes = (
            {
                each["path"]: each["sha256"]
                for each in listed
                if isinstance(each, dict)
                and isinstance(each.get("path"), str)
                and isinstance(each.get("sha256"), str)
            }
            if isinstance(listed, list)
            else {}
        )
        folder, at = summary.get("folder"), summary.get("commit")
        self._folder = Path(folder) if isinstance(folder, str) and os.path.isabs(folder) else None
        self._commit = at if isinstance(at, str) and _COMMIT.fullmatch(at) else None
        self._patches = patches(diff or b"")
        self._read = read

    def text(self, path: str, deadline: float) -> bytes | None:
        """The recorded content of a file, found by its hash; None if it cannot be found."""
        for found in self._candidates(path, deadline):
            if found is not None and hashlib.sha256(found).hexdigest() == self.hashes.get(path):
                return found
        return None

    def _candidates(self, path: str, deadline: float) -> Iterator[bytes | None]:
        patch = self._patches.get(path)
        if patch is not None:
            yield patched(b"", patch)
        if os.path.isabs(path) or ".." in Path(path).parts:
            return
        yield self._read(path)
        if self._folder is None:
            return
        yield _first_bytes(self._folder / path)
        base = self._of_git(path, deadline)
        if base is not None:
            yield base if patch is None else patched(base, patch)

    def _of_git(self, path: str, deadline: float) -> bytes | None:
        if self._commit is None or self._folder is None:
            return None
        if not git_folder.in_repository(self._folder) or time.monotonic() > deadline:
            return None
        asked = git_folder.ask(self._folder, "show", f"{self._commit}:./{path}")
        found = asked.answer(deadline, FILE_MAX + 1) if asked else b""
        return found if asked and asked.ok else None


def _object(data: bytes | None) -> dict:
    try:
        found = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _first_bytes(path: Path) -> bytes | None:
    try:
        if not path.is_file():
            return None
        with open(path, "rb") as f:
            return f.read(FILE_MAX + 1)
    except OSError:
        return None


def patches(diff: bytes) -> dict[str, bytes]:
    """Path -> its part of a patch. Skips parts with a quoted path."""
    found: dict[str, bytes] = {}
    for part in re.split(rb"(?m)^(?=diff --git a/)", diff):
        name = re.search(rb"(?m)^\+\+\+ b/([^\n\t]+)", part)
        if name:
            found[os.fsdecode(name[1])] = part
    return found


def patched(base: bytes, patch: bytes) -> bytes | None:
    """The base text after applying the hunks of one file; None if they do not fit."""
    lines = _lines(base)
    made: list[bytes] = []
    at, seen = 0, False
    for line in _lines(patch):
        hunk = _HUNK.match(line)
        if hunk:
            begin = max(0, int(hunk[1]) - 1) if int(hunk[1]) else 0
            made += lines[at:begin]
            at, seen = begin, True
        elif not seen:
            continue
        elif line.startswith(b"\\"):
            made[-1:] = [made[-1].removesuffix(b"\n")] if made else []
        elif line.startswith(b"+"):
            made.append(line[1:])
        elif line[:1] in (b" ", b"-", b"\n"):
            if at >= len(lines):
                return None
            made += [lines[at]] if line[:1] != b"-" else []
            at += 1
    return b"".join(made + lines[at:])


def _lines(data: bytes) -> list[bytes]:
    return re.findall(rb"[^\n]*\n|[^\n]+", data)


def between(first: Recorded, second: Recorded, names: Sequence[str]) -> dict:
    """`{"files": [{"path", "change", "diff"}], "notes": [text]}`. change: "changed", "added" or "removed",
    from the first to the second.
    diff: a unified diff, None if a text cannot be found."""
    deadline = time.monotonic() + GIT_S
    notes = [
        f"{name}: no code was recorded."
        for name, one in zip(names, (first, second), strict=True)
        if not one.known
    ]
    if notes:
        return {"files": [], "notes": notes}
    notes += [f"{name}: {why}" for name, one in zip(names, (first, second), strict=True) for why in one.cut]
    differ = sorted(
        path
        for path in first.hashes.keys() | second.hashes.keys()
        if first.hashes.get(path) != second.hashes.get(path)
    )
    files, size = [], 0
    for path in differ[:FILES_MAX]:
        diff = _diff(first, second, path, names, deadline) if size < TEXT_MAX else None
        size += len(diff or "")
        files.append({"path": path, "change": _change(first.hashes, second.hashes, path), "diff": diff})
    if len(differ) > FILES_MAX:
        notes.append(f"{len(differ) - FILES_MAX} more files differ.")
    return {"files": files, "notes": notes}


def _change(first: Mapping[str, str], second: Mapping[str, str], path: str) -> str:
    return "changed" if path in first and path in second else "removed" if path in first else "added"


def _diff(first: Recorded, second: Recorded, path: str, names: Sequence[str], deadline: float) -> str | None:
    both = path in first.hashes and path in second.hashes
    if not both and path.endswith(_RESULTS):
        return None
    old, new = (one.text(path, deadline) if path in one.hashes else b"" for one in (first, second))
    if old is None or new is None or b"\0" in old or b"\0" in new:
        return None
    before, after = (text.decode("utf-8", "replace") for text in (old, new))
    made = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True),
                                f"{names[0]}/{path}", f"{names[1]}/{path}")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in made
    )
