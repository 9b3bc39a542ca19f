"""Processes as the kernel tells of them: who lives, who stands still, who is whose child."""

from __future__ import annotations

import json
import os

from .reading import read_bytes
from .words import FROZEN_LOOKS


class Proc:
    """One line of the process table."""

    __slots__ = ("pid", "name", "state", "ppid", "pgrp", "sid", "ticks", "threads", "start", "rss_pages")

    def __init__(self, pid: int, raw: bytes) -> None:
        end = raw.rindex(b")")
        f = raw[end + 2:].split()
        self.pid = pid
        self.name = raw[raw.index(b"(") + 1:end].decode("utf-8", "replace")
        self.state = f[0].decode()
        self.ppid, self.pgrp, self.sid = int(f[1]), int(f[2]), int(f[3])
        self.ticks = int(f[11]) + int(f[12])
        self.threads = int(f[17])
        self.start = int(f[19])
        self.rss_pages = int(f[21])

    @property
    def dead(self) -> bool:
        return self.state == "X" or (self.state == "Z" and self.threads <= 1)

    @property
    def key(self) -> tuple[int, int]:
        return (self.pid, self.start)


def proc(pid: int) -> Proc | None:
    try:
        return Proc(pid, read_bytes("/proc/%d/stat" % pid))
    except (OSError, ValueError, IndexError):
        return None


def is_alive(pid: int) -> bool:
    """Is there a process of that number, and not one that has ended and is only not waited for?"""
    p = proc(pid)
    return p is not None and not p.dead


def all_procs() -> dict[int, Proc]:
    """The process table."""
    found = {}
    for pid in listed_pids():
        p = proc(pid)
        if p:
            found[pid] = p
    return found


def listed_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def who(pid: int) -> dict | None:
    """What tells this process from a later one with its number: pid and start; None when there is none."""
    p = proc(pid)
    return {"pid": pid, "start": p.start} if p else None


def lives(known: dict | None) -> bool:
    """Is this very process still there, and not a later one with its number?"""
    if not isinstance(known, dict) or not isinstance(known.get("pid"), int) or known["pid"] <= 0:
        return False
    p = proc(known["pid"])
    return p is not None and not p.dead and p.start == known.get("start")


class Stillness:
    """Whether a process stands still (SIGSTOP, a debugger):
    at several looks in a row it was stopped and had not run in between.
    The looks are the ticks of whoever looks: what suspends both,
    a sleeping laptop or a paused container, is never seen."""

    def __init__(self, known: dict | None) -> None:
        self.known = known or {}
        self.looks, self.mark = 0, b""

    def look(self) -> bool:
        """One tick later: does it stand still?"""
        mark = stopped_mark(self.known)
        self.looks = self.looks + 1 if mark and (mark == self.mark or not self.looks) else 0
        self.mark = mark
        return self.looks >= FROZEN_LOOKS


def stopped_mark(known: dict) -> bytes:
    """Of a process that is stopped now: how often it has run so far; b"" of any other."""
    p = proc(known.get("pid", 0))
    if p is None or p.start != known.get("start") or p.state not in ("T", "t"):
        return b""
    try:
        lines = read_bytes("/proc/%d/status" % p.pid).split(b"\n")
    except OSError:
        return b""
    return b" ".join(line.split()[1] for line in lines if b"voluntary_ctxt_switches" in line) or b"?"


def status_of_dead(known: dict) -> int | None:
    """The wait status of a process that has ended and that nobody has waited for;
    None where the kernel does not say."""
    me, group = str(os.geteuid()), str(os.getegid())
    try:
        lines = read_bytes("/proc/%d/status" % known["pid"]).decode("utf-8", "replace").splitlines()
        raw = read_bytes("/proc/%d/stat" % known["pid"])
    except (KeyError, OSError):
        return None
    if any(
        set(line.split()[1:]) != {own}
        for line in lines
        for name, own in (("Uid:", me), ("Gid:", group))
        if line.startswith(name)
    ):
        return None  # a 0 may stand there for "not for you to know"
    p = Proc(known["pid"], raw)
    return int(raw.split()[-1]) if p.dead and p.start == known.get("start") else None


def machine_identity() -> dict:
    """Which machine, and since when: a restarted container keeps its host's boot id.
    STOKER_IDENTITY is the tests' seam."""
    seam = os.environ.get("STOKER_IDENTITY")
    if seam:
        try:
            body = json.loads(seam)
        except ValueError:
            body = None
        return (
            body
            if isinstance(body, dict)
            else {"hostname": os.uname().nodename, "boot_id": seam, "init_start": 0}
        )
    try:
        boot = read_bytes("/proc/sys/kernel/random/boot_id").decode().strip()
    except OSError:
        boot = ""
    try:
        pid_ns = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        pid_ns = None
    first = proc(1)
    return {
        "hostname": os.uname().nodename,
        "boot_id": boot,
        "init_start": first.start if first else None,
        "pid_ns": pid_ns,
    }


def same_place(one: object, here: dict) -> bool:
    """May pids of `one` be looked up `here`? A host's name may change while it runs, so it does not count.
    Records of earlier versions do not name their PID namespace."""
    if not isinstance(one, dict):
        return False
    keys = (
        ("boot_id", "init_start", "pid_ns")
        if one.get("pid_ns") and here.get("pid_ns")
        else ("boot_id", "init_start")
    )
    return all(one.get(k) == here.get(k) for k in keys)


def same_kernel(one: object, here: dict) -> bool:
    """Is the monotonic clock of `one` ours?"""
    return isinstance(one, dict) and one.get("boot_id") == here.get("boot_id")


def environ_of(pid: int) -> bytes:
    try:
        return b"\0" + read_bytes("/proc/%d/environ" % pid)
    except OSError:
        return b""


def foreground_of(pid: int) -> int:
    """The foreground process group of its terminal; where it has none, the group that it leads."""
    try:
        group = int(read_bytes("/proc/%d/stat" % pid).rpartition(b")")[2].split()[5])
    except (OSError, ValueError, IndexError):
        group = 0
    return group if group > 0 else pid


def children_of(pid: int) -> list[int]:
    """Children of its main thread, where the kernel lists them."""
    try:
        return [int(c) for c in read_bytes("/proc/%d/task/%d/children" % (pid, pid)).split()]
    except OSError:
        return []


def children_listed() -> bool:
    """Does this kernel list children? (CONFIG_PROC_CHILDREN)"""
    return os.path.exists("/proc/self/task/%d/children" % os.getpid())


def send(p: Proc, sig: int) -> None:
    """Signal this very process; nothing when it has gone."""
    now = proc(p.pid)
    if now is None or now.start != p.start:
        return
    try:
        os.kill(p.pid, sig)
    except OSError:
        pass


def name_process(name: str) -> None:
    try:
        with open("/proc/self/comm", "w") as f:
            f.write(name)
    except OSError:
        pass


def become_subreaper() -> bool:
    """Orphans below us become our children. Kept over exec.
    Without ctypes they are found by session and mark alone."""
    try:
        import ctypes
        return ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0) == 0
    except Exception:
        return False


def close_inherited(keep: set[int]) -> None:
    """Close every descriptor from 3 on but those."""
    try:
        fds = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        fds = list(range(3, 4096))
    for fd in fds:
        if fd > 2 and fd not in keep:
            try:
                os.close(fd)
            except OSError:
                pass


_oom_score = ""


def lower_oom_score() -> None:
    """The kernel should not pick the caretakers when memory runs out. Needs rights that we rarely have."""
    global _oom_score
    try:
        _oom_score = read_bytes("/proc/self/oom_score_adj").decode().strip()
        with open("/proc/self/oom_score_adj", "w") as f:
            f.write("-900")
    except OSError:
        _oom_score = ""


def restore_oom_score() -> None:
    if _oom_score:
        try:
            with open("/proc/self/oom_score_adj", "w") as f:
                f.write(_oom_score)
        except OSError:
            pass


def catches(pid: int, sig: int) -> bool:
    """Whether this process has a handler for the signal, of whatever kind."""
    try:
        for line in read_bytes("/proc/%d/status" % pid).splitlines():
            if line.startswith(b"SigCgt:"):
                return bool(int(line.split()[1], 16) >> (sig - 1) & 1)
    except (OSError, ValueError, IndexError):
        pass
    return False


def command_of(pid: int) -> bytes:
    try:
        return read_bytes("/proc/%d/cmdline" % pid)
    except OSError:
        return b""


def rank_of(pid: int) -> int | None:
    """The rank that a launcher gave a process by its environment."""
    import re
    found = re.search(rb"\0(?:RANK|SLURM_PROCID|OMPI_COMM_WORLD_RANK)=(\d+)\0", environ_of(pid))
    return int(found.group(1)) if found else None


def memory_of(p: Proc) -> int:
    """Bytes of memory of a process, shared ones by its share of them."""
    try:
        for line in read_bytes("/proc/%d/smaps_rollup" % p.pid).splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return p.rss_pages * os.sysconf("SC_PAGE_SIZE")
