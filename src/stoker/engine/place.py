"""The folder of this run: its path, its owner and its content.

Under Stoker, the run's folder; otherwise runs/<script>-<hash of path and arguments>.
The folder of a finished run is not changed: the next start takes a new folder.
Each folder has one owner at a time, by a lock that is released when its process ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import sys
import time
from hashlib import blake2b
from pathlib import Path

from stoker.base.rundir import CHECKPOINTS, read_json, write_json
from stoker.engine.errors import InvalidSpec, StateError

RUN = "run.json"  # {"finished": bool, "script": ..., "starts": n}
LOCK = "lock"
_made: dict[str, int] = {}  # default folders of this process: a second Engine of a script gets one of its own
# of this process, by folder: open files; a notebook cell that runs again takes over its own
_locks: dict[str, int] = {}


def main_file() -> Path | None:
    """Path of the running script; None in a notebook or at a prompt."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(path).resolve() if path and not hasattr(sys, "ps1") else None


def folder(asked: str | None) -> Path:
    """The folder of this run, before a check whether it is finished.
    Raises InvalidSpec in a notebook that names no folder."""
    if asked is not None:
        return Path(asked)
    named, script = os.environ.get("STOKER_RUN_DIR"), main_file()
    if named:
        base = Path(named) / CHECKPOINTS
    elif script is None:
        raise InvalidSpec(
            "Engine cannot choose a folder name, because there is no script name.",
            hint='Choose a folder: Engine(folder="runs/first").',
        )
    else:
        text = "\0".join([str(script), *sys.argv[1:]])
        base = Path("runs") / f"{script.stem}-{blake2b(text.encode(), digest_size=4).hexdigest()}"
    count = _made[str(base)] = _made.get(str(base), 0) + 1
    return base if count == 1 else base.with_name(f"{base.name}-engine{count}")


def choose(base: Path, extend: bool, fresh: bool) -> tuple[Path, str, str]:
    """(the folder to use, a sentence about a folder that was renamed or left unchanged, the name of the
    finished folder before it)."""
    last, n, after = base, 2, ""
    while (following := base.with_name(f"{base.name}-{n}")).exists():
        if (read_json(following / RUN) or {}).get("after") == last.name:
            after, last = last.name, following
        n += 1
    if not last.is_dir():
        return last, "", ""
    if fresh:
        aside = last.with_name(f"{last.name}.old-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
        _refuse_if_held(last)
        os.rename(last, aside)
        return last, f"the old folder was renamed to {aside}", after
    if finished(last) and not extend:
        return following, f"{last} holds a finished run, so this run uses a new folder", last.name
    return last, "", after


def family(asked: Path, roots: list[str]) -> list[str]:
    """The folders of a run with this name: the first folder,
    and later folders for starts after a finished run."""
    base = str(asked.resolve())
    return [root for root in roots if root == base or root.removeprefix(f"{base}-").isdigit()]


def finished(root: Path) -> bool:
    """True if the run of this folder has finished."""
    return bool((read_json(root / RUN) or {}).get("finished"))


def mark(root: Path, **facts: object) -> None:
    """Add facts to the folder's run.json."""
    write_json(root / RUN, {**(read_json(root / RUN) or {}), **facts})


def claim(root: Path) -> None:
    """Become the owner of the folder until this process ends.
    Raises StateError if another process owns the folder; the message names the owner."""
    name = str(root.resolve())
    if name in _locks:
        return
    try:
        root.mkdir(parents=True, exist_ok=True)
        fd = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as e:
        raise StateError(f"{root} cannot be written ({e.strerror}), so no checkpoint can be saved.",
                         hint='Choose a writable folder: Engine(folder=...).') from e
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(fd, 200, 0).decode("utf-8", "replace").strip()
        os.close(fd)
        raise StateError(f"{root} is in use by {holder or 'another process'}.",
                         hint="Wait for the end of that process, stop that process, or use another "
                              "folder.") from None
    os.ftruncate(fd, 0)
    os.pwrite(
        fd,
        f"process {os.getpid()} on {socket.gethostname()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode(),  # noqa: E501
        0,
    )
    _locks[name] = fd


def _refuse_if_held(root: Path) -> None:
    claim(root)
    os.close(_locks.pop(str(root.resolve())))


def free_bytes(root: Path) -> int:
    """Free space on the folder's disk."""
    return shutil.disk_usage(root).free


def code_hashes(script: Path | None) -> dict[str, str]:
    """{file: hash} of the script and of modules imported from its folder; empty without a script."""
    if script is None:
        return {}
    here = f"{script.parent}{os.sep}"
    loaded = {
        os.path.abspath(m.__dict__.get("__file__") or "")
        for m in list(sys.modules.values())
        if hasattr(m, "__dict__")
    }
    own = {
        path
        for path in loaded
        if path.startswith(here) and path.endswith(".py") and "site-packages" not in path
    }
    return {os.path.relpath(path, script.parent): _hash(Path(path)) for path in sorted({str(script), *own})}


def code_changed(script: Path | None, then: dict[str, str]) -> bool:
    """True if one of these files has changed.
    A file that was imported only after the checkpoint does not count."""
    return script is not None and any(_hash(script.parent / name) != digest for name, digest in then.items())


def _hash(path: Path) -> str:
    try:
        return blake2b(path.read_bytes(), digest_size=8).hexdigest()
    except OSError:
        return "not there"
