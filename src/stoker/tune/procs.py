"""Processes of a trial as /proc tells of them:
who belongs to it, what they used, how long others held them up, who else was busy."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field

MARK = "STOKER_TUNE"  # in the environment of a trial: its room
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
END_S = 5.0  # so long SIGKILL is repeated
FREE_DISK, FREE_MEMORY = 300 << 20, 1 << 30  # what a trial leaves to others


def members(leader: int, room: str) -> list[int]:
    """Living processes of the session that `leader` began,
    and whoever carries the trial's mark in its environment."""
    mark = f"{MARK}={room}".encode()
    found = []
    for pid in _pids():
        stat = _stat(pid)
        if stat is None or stat[0] in ("Z", "X") or pid == os.getpid():
            continue
        if stat[1] == leader or (stat[2] and mark in _environ(pid)):
            found.append(pid)
    return found


def end(leader: int, room: str) -> list[int]:
    """SIGKILL the group, its session and what is left by the mark, until none is there;
    those that cannot be ended."""
    with contextlib.suppress(OSError):
        os.killpg(leader, signal.SIGKILL)
    deadline = time.monotonic() + END_S
    while left := members(leader, room):
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return left
        time.sleep(0.01)
    return []


def signal_all(leader: int, number: int, also: list[int]) -> None:
    """To the group at once, then to those of the trial that left it."""
    with contextlib.suppress(OSError):
        os.killpg(leader, number)
    for pid in also:
        with contextlib.suppress(OSError):
            if os.getpgid(pid) != leader:
                os.kill(pid, number)


@dataclass
class Load:
    """What the machine did between two looks. Seconds of cores;
    `own_s` ours, `foreign_s` of others, by name in `who`."""

    wall_s: float = 0.0
    own_s: float = 0.0
    foreign_s: float = 0.0
    lost_s: float = 0.0  # of the wall time: the busiest thread of ours stood ready, and others had the core
    steal_s: float = 0.0  # the host gave the core to another machine
    who: dict[str, float] = field(default_factory=dict)

    @property
    def lost(self) -> float:
        """The share of the time that others cost us."""
        return min(0.95, self.lost_s / max(1e-9, self.wall_s))


class Watch:
    """Who used the cores since the last look: `own` are the pids of a trial; we ourselves count as ours."""

    def __init__(self, own: list[int]) -> None:
        self._own = {*own, os.getpid()}
        self._trial = set(own)
        # what was seen last of processes of ours, should they end
        self._gone: dict = {"each": {}, "threads": {}}
        self._before = self._look()

    def glance(self) -> None:
        """Remember what ours have used so far."""
        for pid in self._trial:
            threads = _threads(pid)
            if threads:
                self._gone["threads"].update(threads)
                self._gone["each"][pid] = _used(pid)

    def load(self, own: list[int] | None = None) -> Load:
        """Since this watch began, or since the last call. own: those that are the trial's by now."""
        if own is not None:
            self._own |= set(own)
            self._trial |= set(own)
        now, before = self._look(), self._before
        self._before = now
        now = {**now, **{name: {**self._gone[name], **now[name]} for name in self._gone}}
        own_s = sum(
            max(0.0, s - before["each"].get(pid, (0.0, ""))[0])
            for pid, (s, _) in now["each"].items()
            if pid in self._own
        )
        who: dict[str, float] = {}
        for pid, (seconds, name) in now["each"].items():
            used = (
                seconds - before["each"].get(pid, (0.0, ""))[0]
                if pid in before["each"]
                else min(seconds, now["at"] - before["at"])
            )
            if pid not in self._own and used > 0:
                who[name] = who.get(name, 0.0) + used
        # also of those that came and went, which no look at the table sees
        foreign_s = max(0.0, now["busy"] - before["busy"] - own_s)
        return Load(
            wall_s=now["at"] - before["at"],
            own_s=own_s,
            foreign_s=foreign_s,
            lost_s=_lost(before, now, own_s, foreign_s),
            steal_s=max(0.0, now["steal"] - before["steal"]),
            who=who,
        )

    def _look(self) -> dict:
        busy, steal = _machine()
        return {
            "at": time.monotonic(),
            "busy": busy,
            "steal": steal,
            "each": {pid: _used(pid) for pid in _pids()},
            "threads": {tid: seen for pid in self._trial for tid, seen in _threads(pid).items()},
        }


def _lost(before: dict, now: dict, own_s: float, foreign_s: float) -> float:
    """How long the step was held up by others:
    the thread that was busy or ready for most of the time is the one that all wait for;
    for its waits others are to blame as far as they, and not our own other threads, used the cores."""
    busiest = (0.0, 0.0)
    for tid, (ran, waited) in now["threads"].items():
        old = before["threads"].get(tid)
        if old:
            busiest = max(busiest, (ran - old[0] + waited - old[1], waited - old[1]))
    whole, waited = busiest
    beside_s = max(0.0, own_s - (whole - waited))
    return max(0.0, waited) * foreign_s / (foreign_s + beside_s) if foreign_s > 0 else 0.0


def tight(place: str) -> str:
    """Why a trial must end for the sake of everybody else here: no disk where it writes, or no memory;
    "" when there is room."""
    disk = os.statvfs(place)
    if disk.f_bavail * disk.f_frsize < FREE_DISK:
        return "the disk is nearly full"
    found = {}
    for line in _read("/proc/meminfo").splitlines():
        name, _, rest = line.partition(b":")
        found[name] = int(rest.split()[0]) * 1024 if rest.split() else 0
    left, whole = found.get(b"MemAvailable", 1), found.get(b"MemTotal", 1)
    return "the memory of this machine is nearly full" if left < min(FREE_MEMORY, 0.05 * whole) else ""


def cpu_s(pids: list[int]) -> float:
    """Processor seconds that these have used so far."""
    return sum(_used(pid)[0] for pid in pids)


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


def _stat(pid: int) -> tuple[str, int, bool] | None:
    """(state, session, is it one of this user's) of a process."""
    raw = _read(f"/proc/{pid}/stat")
    if b")" not in raw:
        return None
    rest = raw[raw.rindex(b")") + 2:].split()
    try:
        return rest[0].decode(), int(rest[3]), os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except (OSError, ValueError, IndexError):
        return None


def _environ(pid: int) -> list[bytes]:
    return _read(f"/proc/{pid}/environ").split(b"\0")


def _used(pid: int) -> tuple[float, str]:
    """(processor seconds, name); nothing for one that is gone."""
    raw = _read(f"/proc/{pid}/stat")
    if b")" not in raw:
        return 0.0, ""
    rest = raw[raw.rindex(b")") + 2:].split()
    name = raw[raw.index(b"(") + 1:raw.rindex(b")")].decode("utf-8", "replace")
    try:
        return (int(rest[11]) + int(rest[12])) * TICK_S, name
    except (ValueError, IndexError):
        return 0.0, name


def _machine() -> tuple[float, float]:
    """(busy, stolen) seconds of all cores since the machine began."""
    for line in _read("/proc/stat").splitlines():
        if line.startswith(b"cpu "):
            user, nice, system, _, _, irq, soft, steal, *_ = [int(x) for x in line.split()[1:]] + [0] * 8
            return (user + nice + system + irq + soft) * TICK_S, steal * TICK_S
    return 0.0, 0.0


def _threads(pid: int) -> dict[int, tuple[float, float]]:
    """Thread -> (seconds it ran, seconds it stood ready without a core)."""
    found: dict[int, tuple[float, float]] = {}
    try:
        names = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for name in names:
        words = _read(f"/proc/{pid}/task/{name}/schedstat").split()
        if len(words) > 1:
            found[int(name)] = int(words[0]) / 1e9, int(words[1]) / 1e9
    return found
