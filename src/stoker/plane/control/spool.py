"""The spool: run folders on their way to a machine.
Each appears whole or not at all, and stays until the machine has it.

`submit` first writes the whole folder (spec.json, limits.json, env 0600, stdin, code/, work/), then commits
the row, then wakes the reconciler. The folder goes only when its content is on the machine.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from stoker.base import rundir
from stoker.base.errors import ServerError, StokerError
from stoker.base.removal import clear, remove
from stoker.base.spec import Limits, Spec
from stoker.base.units import format_size

SWEEP_AGE_S = 60.0
_BUILDING = ".building-"


class Spool:
    """One folder per run, named by its id. Folders of unknown runs are deleted after one minute."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._building: set[str] = set()
        self._lock = threading.Lock()

    def path(self, run_id: str) -> Path:
        """Path of the run's folder while the run waits here."""
        return self.folder / run_id

    @contextlib.contextmanager
    def build(self, run_id: str) -> Iterator[Path]:
        """Context with an empty folder to fill. If the block succeeds, the folder is synced and gets its
        final name."""
        temp = self.folder / f"{_BUILDING}{run_id}"
        with self._lock:
            self._building.add(run_id)
        try:
            with said_when_full(self.folder):
                remove(self.folder, temp.name)
                temp.mkdir(mode=0o700)
                yield temp
                _sync(temp)
                remove(self.folder, run_id)
                os.rename(temp, self.path(run_id))
                _sync(self.folder)
        except BaseException:
            clear(self.folder, temp.name)
            raise
        finally:
            with self._lock:
                self._building.discard(run_id)

    def has(self, run_id: str) -> bool:
        """Whether the run's folder is here."""
        return self.path(run_id).is_dir()

    def remove(self, run_id: str) -> None:
        """Delete the folder of a run."""
        clear(self.folder, run_id)

    def sweep(self, known: Callable[[], set[str]], now: float | None = None) -> list[str]:
        """Delete folders that belong to no run (left by a kill between folder and row). Returns their
        names."""
        now = time.time() if now is None else now
        old = []
        for entry in os.scandir(self.folder):
            with contextlib.suppress(OSError):
                if now - entry.stat(follow_symlinks=False).st_ctime > SWEEP_AGE_S and entry.is_dir(
                    follow_symlinks=False
                ):
                    old.append(entry.name)
        ids = known() if old else set()
        with self._lock:
            swept = [
                name for name in old if name not in ids and name.removeprefix(_BUILDING) not in self._building
            ]
        for name in swept:
            clear(self.folder, name)
        return swept


def fill(folder: Path, spec: Spec, limits: Limits, env: dict[str, str], stdin: bytes | None) -> None:
    """Write the request into a run folder that nobody reads yet: spec.json, limits.json, env (0600),
    stdin. Synced when it returns."""
    files = {
        rundir.SPEC: _json(spec.to_json()),
        rundir.LIMITS: _json(limits.to_json()),
        rundir.ENV: rundir.pack_env(env),
    }
    if stdin is not None:
        files[rundir.STDIN] = stdin
    for name, data in files.items():
        mode = 0o600 if name in (rundir.ENV, rundir.STDIN) else 0o644
        fd = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with open(fd, "wb") as f:
            f.write(data)
    for name in files:  # all written first: the first call takes the others along
        _sync(folder / name)


def _json(body: dict) -> bytes:
    return (json.dumps(body, ensure_ascii=True) + "\n").encode()


@contextlib.contextmanager
def said_when_full(place: Path) -> Iterator[None]:
    """Context that converts a full or failing disk to one clear sentence."""
    try:
        yield
    except StokerError:
        raise
    except OSError as e:
        if e.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise ServerError(f"{e.filename or place} cannot be written ({e.strerror}).") from e
        try:
            room = os.statvfs(place)
            free = f"{format_size(room.f_bavail * room.f_frsize)} and {room.f_favail} inodes free"
        except OSError:
            free = "nothing free"
        raise ServerError(f"The disk that holds {place} is full ({free}); nothing was started.",
                          hint="Free some disk space (stoker gc deletes old runs), then repeat the "
                               "command.") from e


def _sync(place: Path) -> None:
    fd = os.open(place, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
