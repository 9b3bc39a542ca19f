"""A limit on the memory of a started process and all that comes from it:
a control group where we may make one, version 2 or 1."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
CLEAR_S = 2.0


class Cap:
    """`pid` and its children get at most so many bytes. `kind` "" :
    no group could be made, and somebody has to look."""

    def __init__(self, pid: int, most: int, root: Path = ROOT) -> None:
        self.kind, self._folder = "", None
        for kind, home, limit in _homes(root):
            folder = home / f"stoker-{secrets.token_hex(4)}"
            try:
                folder.mkdir()
            except OSError:
                continue
            try:
                (folder / limit).write_text(str(most))
                (folder / "cgroup.procs").write_text(str(pid))
            except OSError:
                with contextlib.suppress(OSError):
                    folder.rmdir()
                continue
            self.kind, self._folder = kind, folder
            return

    def clear(self) -> None:
        """Take the group away: what was in it has ended. What does not want to go stays empty."""
        deadline = time.monotonic() + CLEAR_S
        while self._folder is not None:
            try:
                self._folder.rmdir()
                self._folder = None
            except OSError:
                if time.monotonic() > deadline:
                    return
                time.sleep(0.02)


def _homes(root: Path) -> Iterable[tuple[str, Path, str]]:
    """(kind, folder in which a group can be made, name of its limit), the better first."""
    try:
        rows = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return
    for number, controllers, path in rows:
        at = path.lstrip("/")
        if number == "0" and not controllers:
            for base in (root, root / "unified"):
                if "memory" in _words(base / at / "cgroup.subtree_control"):
                    yield "cgroup v2", base / at, "memory.max"
        elif "memory" in controllers.split(","):
            home = root / "memory" / at  # within our own group: nobody gets out of a limit that is set on us
            if (home / "memory.limit_in_bytes").exists():
                yield "cgroup v1", home, "memory.limit_in_bytes"


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def available() -> int:
    """Bytes that could be taken now without pushing others out:
    of the machine and of our control group, the smaller."""
    free = next(
        (int(line.split()[1]) * 1024 for line in _lines("/proc/meminfo") if line.startswith("MemAvailable:")),
        1 << 30,
    )
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            most = (ROOT / limit).read_text().strip()
            if most != "max":
                free = min(free, max(0, int(most) - int((ROOT / used).read_text())))
        except (OSError, ValueError):
            continue
    return free


def resident(pids: Iterable[int], above: int = 0) -> int:
    """Bytes of these processes. Pages that several have are shared out among them;
    that takes the kernel a while, so it is not asked unless the plain sum, in which they count for each, is
    above `above`."""
    pids = list(pids)
    total = sum(_pages(pid) for pid in pids)
    if len(pids) < 2 or total <= above:
        return total
    return sum(_proportional(pid) or _pages(pid) for pid in pids)


def _pages(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _proportional(pid: int) -> int:
    return next(
        (
            int(line.split()[1]) * 1024
            for line in _lines(f"/proc/{pid}/smaps_rollup")
            if line.startswith("Pss:")
        ),
        0,
    )


def _lines(path: str) -> list[str]:
    try:
        with open(path) as f:
            return f.read().splitlines()
    except OSError:
        return []
