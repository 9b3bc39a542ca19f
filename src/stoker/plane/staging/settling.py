"""Brings frozen copies onto the disk without anybody waiting for it:
written down in the background, compared after a power cut.

A copy that is not written down yet has a list beside it.
Who starts a run that still has one, and finds that the machine was started anew since, compares the copy with
it and takes what was torn from the original once more.

The list is code/copy.list: boot id, and every path with size and time. It is on disk before the row of the
run is. If the original is gone or has changed, the run fails (`start_failed`).
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import stat
import threading
from pathlib import Path

from stoker.base import reading, rundir
from stoker.base.errors import TargetError
from stoker.plane.staging.frozen_copy import FrozenInfo, copy_file

# until the copy is on disk: a line that says when and whence, a line with FrozenInfo.listed
LIST = rundir.COPY_LIST
HEAD_MAX, LISTED_MAX = 64 << 10, 256 << 20  # bytes of its lines
WAITING_MAX = 64  # copies; of the others the list stays, which costs a look at their start after a power cut


def write_list(folder: Path, source: Path, info: FrozenInfo) -> None:
    """Record the content of the copy in the run folder `folder`. The list is on disk when this returns;
    the copy may not be."""
    head = {"boot_id": _boot_id(), "source": os.path.abspath(source)}
    (folder / rundir.CODE).mkdir(parents=True, exist_ok=True)
    with open(folder / rundir.CODE / LIST, "w", encoding="ascii") as f:
        f.write(f"{json.dumps(head)}\n{json.dumps(info.listed)}\n")
        f.flush()
        os.fsync(f.fileno())


def assure(folder: Path) -> list[str]:
    """Check that the copy in the run folder is complete; returns the paths that had to be copied again after
    a power cut.
    Before the first attempt, everything must match the list. Later, the run may have changed its files:
    then only incomplete files that nobody changed since are replaced. Raises TargetError if the original
    is missing or has changed."""
    try:
        with open(reading.open_regular(os.fspath(folder / rundir.CODE / LIST)), "rb") as f:
            head = json.loads(f.readline(HEAD_MAX))
            source = str(head["source"])
            if head["boot_id"] == _boot_id():
                return []
            listed = list(json.loads(f.readline(LISTED_MAX)))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as e:
        raise _lost("the list of files") from e
    work = folder / rundir.WORK
    fresh = not rundir.RunDir(folder).attempts()
    hashes = rundir.code_hashes(folder) if fresh else {}
    inside = [entry for entry in listed if _is_inside(work, entry)]
    torn = [entry for entry in inside if _torn(os.path.join(work, entry[0]), entry, fresh, hashes)]
    for entry in torn:
        try:
            whole = _again(os.path.join(source, entry[0]), os.path.join(work, entry[0]), entry)
        except OSError:
            whole = False
        if not whole:
            raise _lost(entry[0])
    return [entry[0] for entry in torn]


class Settling:
    """Syncs frozen copies in the background, several at a time. Nobody waits for it; a copy that is not
    synced yet has a list."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[int] = []
        self._busy = False

    def add(self, folder: Path) -> None:
        """Sync the copy in this run folder, which may be moved meanwhile. Has no effect if there is no
        copy."""
        with contextlib.suppress(OSError), self._lock:
            if len(self._waiting) >= WAITING_MAX or not os.path.exists(folder / rundir.CODE / LIST):
                return
            self._waiting.append(os.open(folder / rundir.CODE, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            if not self._busy:
                self._busy = True
                threading.Thread(target=self._write_down, name="settling", daemon=True).start()

    def _write_down(self) -> None:
        syncfs = getattr(ctypes.CDLL(None), "syncfs", None)
        while True:
            with self._lock:
                taken, self._waiting = self._waiting, []
                self._busy = bool(taken)
            if not taken:
                return
            done = syncfs is not None and syncfs(taken[0]) == 0  # they all lie in one spool
            for fd in taken:
                with contextlib.suppress(OSError):
                    if done:
                        os.unlink(LIST, dir_fd=fd)
                os.close(fd)


def _is_inside(work: Path, entry: object) -> bool:
    """Whether an entry is a path in the copy, to which no link leads:
    the run may have changed both the list and its folders."""
    if not isinstance(entry, list) or not 1 <= len(entry) <= 3 or not isinstance(entry[0], str):
        return False
    folder, top = os.path.dirname(entry[0]), os.path.realpath(work)
    return ".." not in Path(folder).parts and os.path.realpath(os.path.join(top, folder)) == os.path.join(
        top, folder
    ).rstrip("/")


def _torn(path: str, entry: list, fresh: bool, hashes: dict[tuple, str]) -> bool:
    """Whether this entry of the list is not in the copy as it was made."""
    try:
        info = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return fresh
    if len(entry) == 1:
        return fresh and not stat.S_ISDIR(info.st_mode)
    if len(entry) == 2:
        return fresh and not (stat.S_ISLNK(info.st_mode) and os.readlink(path) == entry[1])
    if not stat.S_ISREG(info.st_mode) or info.st_mtime_ns != entry[2]:
        return fresh
    if info.st_size != entry[1]:
        return True
    known = hashes.get(tuple(entry))
    return known is not None and _sha256(path) != known


def _again(original: str, copy: str, entry: list) -> bool:
    """Make one entry of the copy anew, on disk when it returns;
    False when the original is not what was copied."""
    if len(entry) == 1:
        os.makedirs(copy, exist_ok=True)
        return True
    os.makedirs(os.path.dirname(copy), exist_ok=True)
    if len(entry) == 3:
        info = os.stat(original)
        if (info.st_size, info.st_mtime_ns) != (entry[1], entry[2]):
            return False
    with contextlib.suppress(FileNotFoundError):
        os.unlink(copy)
    if len(entry) == 2:
        os.symlink(entry[1], copy)
        with contextlib.suppress(OSError):
            info = os.lstat(original)
            os.utime(copy, ns=(info.st_atime_ns, info.st_mtime_ns), follow_symlinks=False)
        return True
    made = copy_file(original, copy, info)
    with open(copy, "rb") as f:
        os.fsync(f.fileno())
    return made is not None and made[0] == entry[1]


def _sha256(path: str) -> str:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _lost(what: str) -> TargetError:
    return TargetError(
        f"The power failed before the copy was on disk: {what} is lost, and the original has changed.",
        retry=False,
        hint="Run the same command again to make a new copy.",
    )


def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
        return f.read().strip()
