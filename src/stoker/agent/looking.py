"""What is asked about a run folder, all in one answer.
The same functions serve who stands beside the folder.

Questions, with arguments: `read NAME LIMIT` and `tail NAME LIMIT` (answer `data`: base64 of zlib; `broken`:
why it cannot be used) · `has NAME` · `env` (names only) · `cost` · `changed FOLDER SINCE UNTIL LIMIT` ·
`made SINCE UNTIL` (`data`: a list of `{"path", "size", "mtime_ns", "kind", "sent"}`) · `written [ID]` ·
`edited`.
"""

from __future__ import annotations

import json
import os
import stat
import time

from .attempts import attempt_numbers
from .reading import MANIFEST_KINDS, Broken, load_json, parse_json, read_regular, read_tail
from .words import (
    ATTEMPTS, CHANGED_MAX, CHANGED_S, CODE, COST_S, ENV, ENV_MAX, HOOKS, IMAGES, JUNK, LATE_S, MADE_MAX,
    MADE_S, MANIFEST, MANIFEST_MAX, RESUME, RESUME_STATE, SCRIPT_MAX, UNDO, WORK, WRITTEN, WRITTEN_READ,
    valid_id,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def is_environment(entries: list[os.DirEntry]) -> bool:
    """True when these are the entries of a virtual or conda environment."""
    return any(e.name in ("pyvenv.cfg", "conda-meta") for e in entries)


class Listing:
    """The files under a folder without junk and without the folder `left_out`:
    path -> stat, the near ones first. `bulk`: folders with more than `in_folder` files, listed in part.
    `cut`: why it is not whole, "" if it is."""

    def __init__(self, folder: str, left_out: str, in_folder: int) -> None:
        self.files: dict[str, os.stat_result] = {}
        self.bulk: list[str] = []
        self.cut = ""
        self._folder, self._in_folder = folder, in_folder
        self._left_out = os.path.relpath(os.path.realpath(left_out), os.path.realpath(folder))
        self._queue = [""]

    def walk(self, deadline: float, most: int) -> Listing:
        """Itself, filled until the deadline, or until it has so many files.
        The folder itself is listed on the slowest machine."""
        for base in self._queue:
            if base and (time.monotonic() > deadline or len(self.files) >= most):
                self.cut = "only %d files were listed" % len(self.files)
                break
            try:
                with os.scandir(os.path.join(self._folder, base)) as opened:
                    entries = list(opened)
            except OSError:
                continue
            if not (base and is_environment(entries)):
                self._list(base, entries)
        return self

    def _list(self, base: str, entries: list[os.DirEntry]) -> None:
        count = 0
        for entry in entries:
            if entry.name in JUNK or entry.name.endswith(".pyc"):
                continue
            path = os.path.join(base, entry.name)
            try:
                if entry.is_dir(follow_symlinks=False):
                    if path != self._left_out:
                        self._queue.append(path)
                    continue
                count += 1
                if count > self._in_folder:
                    self.bulk.append(base)
                    return
                info = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISREG(info.st_mode):
                self.files[path] = info


def spelled(path: str) -> str:
    """A file name as JSON can hold it; bytes that are no UTF-8 become escapes."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class Change:
    """A file that is new, or not as the record of the code has it:
    `before` is its line in that record, None for a new file."""

    def __init__(self, path: str, info: os.stat_result, before: dict | None) -> None:
        self.path, self.info, self.before = path, info, before

    @property
    def kind(self) -> str:
        """"new" or "changed"."""
        return "new" if self.before is None else "changed"


def changes(listing: Listing, manifest: str, since: float, until: float | None) -> list[Change]:
    """The files of a walk that differ from the record in `manifest`, the newest first.

    since: Unix time of the start, which decides for files that the record does not cover. until: Unix
        time of the end; what was written later is somebody else's.
    """
    try:
        body = load_json(manifest, MANIFEST_KINDS, MANIFEST_MAX)
    except (OSError, ValueError):
        body = {}
    known = {f.get("path"): f for f in body.get("files") or () if f}
    complete, bulk = bool(body.get("complete")), frozenset(body.get("bulk") or ())
    found = []
    for path, info in listing.files.items():
        name = spelled(path)
        if name.endswith(UNDO) or (until is not None and info.st_mtime > until + LATE_S):
            continue
        before = known.get(name)
        if before is not None:
            if (before.get("size"), before.get("mtime_ns")) != (info.st_size, info.st_mtime_ns):
                found.append(Change(path, info, before))
        elif (complete and os.path.dirname(path) not in bulk) or max(
            info.st_ctime, info.st_mtime
        ) >= since - 1:
            found.append(Change(path, info, None))
    return sorted(found, key=lambda each: -each.info.st_mtime_ns)


def changed_files(
    folder: str, manifest: str, left_out: str, *, since: float, until: float | None, limit: int
) -> list[dict]:
    """`changes` of a folder: {"path", "size", "kind":
    "new"|"changed", "mtime", "mtime_ns"}, at most `limit`.
    A folder too large to be walked in a second is told of as far as it was seen."""
    listing = Listing(folder, left_out, CHANGED_MAX).walk(time.monotonic() + CHANGED_S, CHANGED_MAX)
    return [
        {
            "path": spelled(each.path),
            "size": each.info.st_size,
            "kind": each.kind,
            "mtime": each.info.st_mtime,
            "mtime_ns": each.info.st_mtime_ns,
        }
        for each in changes(listing, manifest, since, until)[:limit]
    ]


def written_paths(run_dirs: list[str]) -> set[str]:
    """The files that the processes of these runs were seen to open for writing, without symbolic links,
    spelled as `changed_files` does."""
    folders: dict[str, str] = {}
    found = set()
    for run_dir in run_dirs:
        for number in attempt_numbers(run_dir):
            attempt = os.path.join(run_dir, ATTEMPTS, str(number))
            for place in (attempt, os.path.join(attempt, HOOKS)):
                for line in read_tail(os.path.join(place, WRITTEN), WRITTEN_READ).splitlines():
                    try:
                        path = parse_json(line, {"path": str}).get("path") or ""
                    except Broken:
                        continue
                    folder, name = os.path.split(path)
                    if folder not in folders:
                        folders[folder] = os.path.realpath(folder)
                    path = os.path.join(folders[folder], name)
                    found.add(spelled(os.path.realpath(path) if os.path.islink(path) else path))
    return found


def folder_cost(folder: str, deadline: float) -> tuple[int, int] | None:
    """Bytes on disk and inodes of what is in a folder; links are counted, not followed.
    None when it took until the deadline."""
    size = inodes = 0
    waiting = [folder]
    while waiting:
        if time.monotonic() > deadline:
            return None
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    info = entry.stat(follow_symlinks=False)
                    size += info.st_blocks * 512
                    inodes += 1
                    if stat.S_ISDIR(info.st_mode):
                        waiting.append(entry.path)
        except OSError:
            continue
    return size, inodes + (1 if inodes else 0)


def edited_files(run_dir: str) -> tuple[list[str], int]:
    """The files of the script's that are not what they were at the newest image any more, and the step of
    that image: with them, an attempt would begin anew. None where there is no image that could be lost."""
    from hashlib import blake2b
    try:
        state = load_json(
            os.path.join(run_dir, RESUME, RESUME_STATE), {"state": str, "image": {"n": int, "step": int}}
        )
        image = state.get("image") or {}
        if state.get("state") != "resumable" or not image:
            return [], 0
        told = load_json(
            os.path.join(run_dir, RESUME, IMAGES, str(image.get("n")), MANIFEST),
            {"code": {"*": str}},
            MANIFEST_MAX,
        )
    except (OSError, ValueError):
        return [], 0
    edited = []
    for path, digest in (told.get("code") or {}).items():
        try:
            now = blake2b(read_regular(path, SCRIPT_MAX), digest_size=16).hexdigest()
        except (OSError, ValueError):
            now = ""
        if now != digest:
            edited.append(path)
    return edited, image.get("step") or 0


def pack(data: bytes) -> str:
    """Bytes in a line of JSON."""
    import base64
    import zlib
    return base64.b64encode(zlib.compress(data, 1)).decode("ascii")


def look_read(run_dir: str, name: str, limit: int) -> dict:
    """A whole file of at most `limit` bytes."""
    try:
        return {"data": pack(read_regular(os.path.join(run_dir, name), limit))}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, Broken) as e:
        return {"broken": getattr(e, "strerror", None) or str(e)}


def look_tail(run_dir: str, name: str, limit: int) -> dict:
    """The last bytes of a file."""
    return {"data": pack(read_tail(os.path.join(run_dir, name), limit))}


def look_has(run_dir: str, name: str) -> dict:
    """Whether there is such a file."""
    return {"has": os.path.isfile(os.path.join(run_dir, name))}


def look_env(run_dir: str) -> dict:
    """The names of the run's variables. Their values never leave the folder."""
    try:
        pairs = read_regular(os.path.join(run_dir, ENV), ENV_MAX).split(b"\0")
    except (OSError, Broken):
        return {}
    return {
        "names": sorted(
            item.split(b"=", 1)[0].decode("utf-8", "surrogateescape") for item in pairs if b"=" in item
        )
    }


def look_cost(run_dir: str) -> dict:
    """Bytes and inodes of the run folder; nothing where counting takes too long."""
    cost = folder_cost(run_dir, time.monotonic() + COST_S)
    return {} if cost is None else {"bytes": cost[0], "inodes": cost[1]}


def look_changed(run_dir: str, folder: str, since: float, until: float | None, limit: int) -> dict:
    """`changed_files` of the run's copy, or of another folder; `top` is where they are, without links."""
    work = folder or os.path.join(run_dir, WORK)
    root = os.path.dirname(os.path.dirname(run_dir))
    if not os.path.isdir(work):
        return {"top": work, "files": []}
    found = changed_files(
        work, os.path.join(run_dir, CODE, MANIFEST), root, since=since, until=until, limit=limit
    )
    return {"top": os.path.realpath(work), "files": found}


def look_made(run_dir: str, since: float, until: float | None) -> dict:
    """All files of the run's copy that it made or changed, packed, each with what was sent in its place.
    `cut`: why these are not all."""
    work, root = os.path.join(run_dir, WORK), os.path.dirname(os.path.dirname(run_dir))
    listing = Listing(work, root, MADE_MAX).walk(time.monotonic() + MADE_S, MADE_MAX)
    made = [
        {
            "path": each.path,
            "size": each.info.st_size,
            "mtime_ns": each.info.st_mtime_ns,
            "kind": each.kind,
            "sent": each.before,
        }
        for each in changes(listing, os.path.join(run_dir, CODE, MANIFEST), since, until)
    ]
    return {"data": pack(json.dumps(made).encode()), "cut": listing.cut}


def look_written(run_dir: str, ids: list[str]) -> dict:
    """What the processes of these runs wrote."""
    runs = os.path.dirname(run_dir)
    return {"paths": sorted(written_paths([os.path.join(runs, each) for each in ids if valid_id(each)]))}


def look_edited(run_dir: str) -> dict:
    """The script's files that were edited after the last image, and the step of that."""
    paths, step = edited_files(run_dir)
    return {"paths": paths, "step": step}


QUESTIONS: dict[str, Callable[..., dict]] = {
    "read": look_read,
    "tail": look_tail,
    "has": look_has,
    "env": look_env,
    "cost": look_cost,
    "changed": look_changed,
    "made": look_made,
    "written": look_written,
    "edited": look_edited,
}
