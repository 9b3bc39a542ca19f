"""Who had the processors: this process, its workers, or somebody else. Read from /proc;
what cannot be read is None."""

from __future__ import annotations

import os
import sys

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Look:
    """One look: seconds since the start of each, all that a window's edges are compared by."""

    __slots__ = ("busy", "children", "cpu", "waited")

    def __init__(self) -> None:
        times = os.times()
        self.cpu = times.user + times.system
        self.children = times.children_user + times.children_system + sum(cpu_of(pid) for pid in workers())
        self.waited = _stood_ready()
        self.busy = _machine()


def between(a: Look, b: Look) -> dict:
    """`cpu_s`, `children_cpu_s`, `busy_s` (the whole machine), `wait_s` (ready, without a core) and
    `stolen_s` (as much of that as is not explained by threads and workers of our own)."""
    own = b.cpu - a.cpu
    children = max(0.0, b.children - a.children)
    told = {"cpu_s": round(own, 4), "children_cpu_s": round(children, 4)}
    if a.busy is None or b.busy is None:
        return told
    busy = b.busy - a.busy
    foreign = max(0.0, busy - own - children)
    told.update(busy_s=round(busy, 3), foreign_cpu_s=round(foreign, 3))
    if a.waited is None or b.waited is None:
        return told
    waited = b.waited - a.waited
    rivals = foreign + children
    told["wait_s"] = round(waited, 4)
    told["stolen_s"] = round(waited * foreign / rivals, 4) if rivals > 0 else 0.0
    return told


def workers() -> list:
    """Processes that multiprocessing started from here and that live."""
    known = sys.modules.get("multiprocessing.process")
    return [child.pid for child in list(getattr(known, "_children", ())) if child.pid]


def cpu_of(pid: int) -> float:
    """Seconds of processor time of another process; 0 where it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            said = f.read().rpartition(b")")[2].split()
        return (int(said[11]) + int(said[12])) / _TICK
    except (OSError, IndexError, ValueError):
        return 0.0


def resident() -> int:
    """Bytes of this process that are in memory."""
    try:
        with open("/proc/self/statm", "rb") as f:
            return int(f.read().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def cores() -> int:
    """Cores that this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as f:
            quota, period = f.read().split()[:2]
        if quota != "max":
            allowed = min(allowed, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):
        pass
    return allowed


def _stood_ready() -> float | None:
    """Seconds that the main thread stood ready to run while others had the core."""
    try:
        with open("/proc/self/schedstat", "rb") as f:
            return int(f.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def _machine() -> float | None:
    try:
        with open("/proc/stat", "rb") as f:
            said = [int(each) for each in f.readline().split()[1:9]]
        user, nice, system, _idle, _iowait, irq, soft, steal = said
        return (user + nice + system + irq + soft + steal) / _TICK
    except (OSError, IndexError, ValueError):
        return None
