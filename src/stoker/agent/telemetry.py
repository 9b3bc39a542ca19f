"""What a run uses: CPU, memory, disk, GPUs; what it opened for writing; whether it waits for input.
The verb `probe` says what there is."""

from __future__ import annotations

import os
import sys
import time

from .claiming import leased
from .machine import cpu_quota, is_local, memory_bytes, space, torch_version, user_name
from .processes import all_procs, children_of, machine_identity, proc
from .reading import Broken, read_bytes, read_regular, size_of
from .words import AGENT, ENV, ENV_MAX, OUT, WRITTEN, WRITTEN_MAX
from .writing import append_line, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Any

    from .attempts import Attempt
    from .processes import Proc


class Sampler:
    """What the tree uses. The whole process table is read rarely:
    its cost stays below a five-hundredth of the time."""

    def __init__(self, att: Attempt, holder: int, agent: int, run: dict | None, gpus: str) -> None:
        self.att, self.holder, self.agent, self.run = att, holder, agent, run
        self.known: dict[tuple[int, int], int] = {}  # process -> its CPU ticks at the last sample
        self.pids: set[int] = set()
        self.next_scan = 0.0
        self.sampled = time.monotonic()
        self.last: dict = {}  # the newest record
        self.tick = os.sysconf("SC_CLK_TCK")
        self.page = os.sysconf("SC_PAGE_SIZE")
        self.gpus = Gpus(wanted_gpus(att, gpus))
        cwd = (att.json(AGENT) or {}).get("cwd")
        self.disks = [att.run_dir] + (
            [cwd] if isinstance(cwd, str) and is_local(os.path.realpath(cwd)) else []
        )

    def members(self) -> list[Proc]:
        """The processes of the run, as of now."""
        now = time.monotonic()
        if now >= self.next_scan:
            began = time.process_time()
            self._scan()
            self.next_scan = now + max(10.0, (time.process_time() - began) * 500)
        else:
            self._grow()
        found = [p for p in map(proc, sorted(self.pids)) if p is not None and not p.dead]
        self.pids = {p.pid for p in found}
        return found

    def _scan(self) -> None:
        table = all_procs()
        children: dict[int, list[int]] = {}
        for p in table.values():
            children.setdefault(p.ppid, []).append(p.pid)
        run = (self.run or {}).get("pid", 0)
        todo = [p.pid for p in table.values() if p.ppid == self.holder or (run and p.sid == run)]
        self.pids = set()
        while todo:
            pid = todo.pop()
            if pid not in self.pids and pid not in (self.agent, self.holder):
                self.pids.add(pid)
                todo.extend(children.get(pid, ()))

    def _grow(self) -> None:
        """Between scans: children of the main threads of those we know, where the kernel lists them."""
        run = (self.run or {}).get("pid")
        todo = list(self.pids) + ([run] if run and run not in self.pids else [])
        while todo:
            pid = todo.pop()
            self.pids.add(pid)
            todo.extend(child for child in children_of(pid) if child not in self.pids)

    def sample(self, members: list[Proc]) -> dict:
        """One record of telemetry: CPU, memory, GPUs, disk.

        A line of telemetry.jsonl: `{"at", "t", "cpu_percent", "rss_bytes", "processes", "gpus": [{"uuid",
        "index", "busy_percent", "memory_bytes"}], "disk_free_bytes", "inodes_free", "out_bytes"}`, every 2
        s, after the first hour every 10 s.
        """
        now = time.monotonic()
        spent = sum(max(0, p.ticks - self.known.get(p.key, 0)) for p in members)
        span, self.sampled = max(0.01, now - self.sampled), now
        self.known = {p.key: p.ticks for p in members}
        free = [os.statvfs(d) for d in self.disks if os.path.isdir(d)]
        self.last = {
            "cpu_percent": round(100.0 * spent / self.tick / span, 1),
            "rss_bytes": sum(p.rss_pages for p in members) * self.page,
            "processes": len(members),
            "gpus": self.gpus.sample(),
            "disk_free_bytes": min((s.f_bavail * s.f_frsize for s in free), default=None),
            "inodes_free": min((s.f_favail for s in free if s.f_files), default=None),
            "out_bytes": size_of(self.att.path(OUT)),
        }
        return self.last


class Written:
    """Which files of the working folder the run's processes have open for writing.
    What is open only between two looks is not seen: Python processes tell of that themselves."""

    def __init__(self, att: Attempt, spec: dict) -> None:
        cwd = (att.json(AGENT) or {}).get("cwd")
        self.path = att.path(WRITTEN)
        self.below = ""
        if isinstance(cwd, str) and not spec.get("copy"):  # nobody else works in a copy
            self.below = os.path.join(os.path.realpath(cwd), "")
        self.known: set[str] = set()
        self.next = 0.0

    def look(self, now: float, members: list[Proc]) -> None:
        """Write down the paths that are new. Its cost stays below a five-hundredth of the time."""
        if not self.below or now < self.next or len(self.known) >= WRITTEN_MAX:
            return
        began = time.process_time()
        for p in members:
            for path in open_for_writing(p.pid, self.below) - self.known:
                self.known.add(path)
                append_line(self.path, {"path": path})
        self.next = now + (time.process_time() - began) * 500


def open_for_writing(pid: int, below: str) -> set[str]:
    """The files under the folder `below`, which ends with a slash, that a process has open for writing."""
    found: set[str] = set()
    try:
        numbers = os.listdir("/proc/%d/fd" % pid)
    except OSError:
        return found
    for n in numbers:
        try:
            path = os.readlink("/proc/%d/fd/%s" % (pid, n))
            if path.startswith(below):
                words = read_bytes("/proc/%d/fdinfo/%s" % (pid, n)).split()
                found |= {path} if int(words[words.index(b"flags:") + 1], 8) & os.O_ACCMODE else set()
        except (OSError, ValueError):
            continue
    return found


# System call numbers of read and pselect6/select, to see what a process sleeps in.
_READS = {"x86_64": ("0",), "aarch64": ("63",)}
_SELECTS = {"x86_64": ("23", "270"), "aarch64": ("72",)}


def stdin_is_awaited(members: list[Proc], run: dict | None) -> bool:
    """Does the main thread of one of them sleep in a read of the run's terminal or input pipe? Best effort.

    Where the kernel shows the system call, that is certain.
    Where it does not (Yama, containers), a sleep in the terminal's read counts, and a sleep in a pipe's read
    only for a process without children.
    """
    try:
        source = os.readlink("/proc/%d/fd/0" % run["pid"]) if run else ""
    except OSError:
        return False
    if not source.startswith(("/dev/pts/", "pipe:")):
        return False
    return any(p.state == "S" and _reads_stdin(p, source) for p in members[:64])


def _reads_stdin(p: Proc, source: str) -> bool:
    machine = os.uname().machine
    try:
        call = read_bytes("/proc/%d/syscall" % p.pid).decode().split()
        if len(call) < 2:
            return False
        if call[0] in _READS.get(machine, ()):
            return os.readlink("/proc/%d/fd/%d" % (p.pid, int(call[1], 16))) == source
        return (
            call[0] in _SELECTS.get(machine, ())
            and call[1] == "0x1"
            and os.readlink("/proc/%d/fd/0" % p.pid) == source
        )
    except OSError:
        pass
    try:
        if os.readlink("/proc/%d/fd/0" % p.pid) != source:
            return False
        where = read_bytes("/proc/%d/wchan" % p.pid).decode()
        if source.startswith("/dev/pts/"):
            return where in ("n_tty_read", "wait_woken")
        return where in ("pipe_read", "anon_pipe_read", "pipe_wait") and not children_of(p.pid)
    except OSError:
        return False


def wanted_gpus(att: Attempt, handed_out: str) -> list[str] | None:
    """Uuids or indices of the run's GPUs; None = all of the machine."""
    chosen = handed_out
    if not chosen:
        try:
            env = read_regular(os.path.join(att.run_dir, ENV), ENV_MAX).split(b"\0")
        except (OSError, Broken):
            env = []
        for item in env:
            if item.startswith(b"CUDA_VISIBLE_DEVICES="):
                chosen = item.split(b"=", 1)[1].decode("utf-8", "replace")
                if not chosen.strip() or chosen.strip() == "-1":
                    return []
    return [c.strip() for c in chosen.split(",") if c.strip()] if chosen else None


class Gpus:
    """GPU figures by NVML. Where its library is missing, by `nvidia-smi`,
    at most each 30 s and never waited for."""

    def __init__(self, wanted: list[str] | None) -> None:
        self.wanted = wanted
        self.lib: Any = None
        self.devices: list[dict] = []
        self.tried = wanted == []
        self.child: subprocess.Popen[bytes] | None = None
        self.last: list[dict] = []
        self.next_ask = 0.0

    def sample(self) -> list[dict]:
        """What each GPU does now; empty where there is none."""
        if not self.tried:
            self.tried = True
            self._open()
        if self.lib is not None:
            return [self._read(d) for d in self.devices]
        return self._ask()

    def facts(self) -> list[dict]:
        """Once: index, uuid, name, memory_bytes, used_bytes of each;
        `pids` of processes that compute on it, and who has `leased` it."""
        found = self._facts()
        for gpu in found:
            gpu["leased"] = leased(gpu["uuid"])
        return found

    def _facts(self) -> list[dict]:
        self.tried = True
        self._open()
        if self.lib is not None:
            return [
                dict(
                    {k: d[k] for k in ("index", "uuid", "name")},
                    memory_bytes=self._memory(d)[0],
                    used_bytes=self._memory(d)[1],
                    pids=self._pids(d),
                )
                for d in self.devices
            ]
        rows = [
            r
            for r in nvidia_smi("gpu=index,uuid,name,memory.total,memory.used")
            if len(r) >= 5 and r[0].isdigit()
        ]
        apps = (
            [r for r in nvidia_smi("compute-apps=pid,gpu_uuid,used_memory") if len(r) == 3 and r[0].isdigit()]
            if rows
            else []
        )
        return [
            {
                "index": int(r[0]),
                "uuid": r[1],
                "name": r[2],
                "memory_bytes": mib(r[3]),
                "used_bytes": mib(r[4]),
                "pids": [int(a[0]) for a in apps if a[1] == r[1]],
            }
            for r in rows
        ]

    def _pids(self, d: dict) -> list[int]:
        import ctypes
        room, count = 64, ctypes.c_uint(64)
        table = (ctypes.c_ulonglong * (3 * room))()  # pid and padding, memory, two ids of MIG
        ask = getattr(self.lib, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        if ask is None or ask(d["handle"], ctypes.byref(count), table) != 0:
            return []
        return [table[3 * i] & 0xFFFFFFFF for i in range(min(count.value, room))]

    def close(self) -> None:
        """Leave no nvidia-smi behind."""
        if self.child is not None:
            self.child.kill()
            if self.child.stdout is not None:
                self.child.stdout.close()
            self.child = None

    def _open(self) -> None:
        try:
            import ctypes
            lib = ctypes.CDLL("libnvidia-ml.so.1")
            if lib.nvmlInit_v2() != 0:
                return
            count = ctypes.c_uint(0)
            if lib.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
                return
        except (ImportError, OSError, AttributeError):
            return
        self.lib = lib
        for index in range(count.value):
            handle = ctypes.c_void_p()
            if lib.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
                continue
            uuid, name = self._text("nvmlDeviceGetUUID", handle), self._text("nvmlDeviceGetName", handle)
            d = {"index": index, "handle": handle, "uuid": uuid, "name": name}
            if self._is_wanted(str(index), uuid):
                self.devices.append(d)

    def _is_wanted(self, index: str, uuid: str) -> bool:
        return (
            self.wanted is None
            or index in self.wanted
            or any(w.startswith("GPU-") and uuid.startswith(w) for w in self.wanted)
        )

    def _text(self, function: str, handle: object) -> str:
        import ctypes
        buffer = ctypes.create_string_buffer(96)
        return (
            buffer.value.decode("utf-8", "replace")
            if getattr(self.lib, function)(handle, buffer, 96) == 0
            else ""
        )

    def _memory(self, d: dict) -> tuple[int | None, int | None]:
        import ctypes
        figures = (ctypes.c_ulonglong * 3)()  # total, free, used
        if self.lib.nvmlDeviceGetMemoryInfo(d["handle"], ctypes.byref(figures)) != 0:
            return (None, None)
        return (figures[0], figures[2])

    def _read(self, d: dict) -> dict:
        import ctypes
        rates = (ctypes.c_uint * 2)()  # gpu, memory; not known under MIG
        known = self.lib.nvmlDeviceGetUtilizationRates(d["handle"], ctypes.byref(rates)) == 0
        return {
            "uuid": d["uuid"],
            "index": d["index"],
            "busy_percent": rates[0] if known else None,
            "memory_bytes": self._memory(d)[1],
        }

    def _ask(self) -> list[dict]:
        """nvidia-smi in the background: what it said last time, and start it again when 30 s have passed."""
        if self.child is not None and self.child.stdout is not None and self.child.poll() is not None:
            rows = comma_rows(self.child.stdout.read())
            self.child.stdout.close()
            self.child = None
            rows = [r for r in rows if len(r) == 4 and r[0].isdigit() and self._is_wanted(r[0], r[1])]
            self.last = [
                {
                    "uuid": r[1],
                    "index": int(r[0]),
                    "busy_percent": int(r[2]) if r[2].isdigit() else None,
                    "memory_bytes": mib(r[3]),
                }
                for r in rows
            ]
        now = time.monotonic()
        # it hangs, as it does when a GPU has failed: not again
        if self.child is not None and now >= self.next_ask + 60.0:
            self.close()
            self.last, self.next_ask = [], float("inf")
        if self.child is None and now >= self.next_ask:
            self.next_ask = now + 30.0
            if not on_path("nvidia-smi"):
                self.next_ask = float("inf")
                return []
            import subprocess
            try:
                self.child = subprocess.Popen(
                    smi_command("gpu=index,uuid,utilization.gpu,memory.used"),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            except OSError:
                pass
        return self.last


def on_path(name: str) -> bool:
    return any(
        os.access(os.path.join(d, name), os.X_OK) for d in os.environ.get("PATH", "/usr/bin:/bin").split(":")
    )


def nvidia_smi(fields: str) -> list[list[str]]:
    """What "gpu=index,uuid" or "compute-apps=pid" asks of the program nvidia-smi;
    empty where there is none."""
    if not on_path("nvidia-smi"):
        return []
    import subprocess
    try:
        done = subprocess.run(
            smi_command(fields),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return comma_rows(done.stdout)


def smi_command(fields: str) -> list[str]:
    return ["nvidia-smi", "--query-" + fields, "--format=csv,noheader,nounits"]


def comma_rows(raw: bytes) -> list[list[str]]:
    return [
        [part.strip() for part in line.split(",")] for line in raw.decode("utf-8", "replace").splitlines()
    ]


def mib(text: str) -> int | None:
    return int(text) * 1048576 if text.isdigit() else None


def verb_probe(args: list[str]) -> None:
    """probe [PATH]

    `cpus` (1.5 with such a quota) and `memory_bytes` are what Stoker may use: after affinity, cgroup quota
    and cgroup limit. `gpus`: see Gpus.facts.
    """
    path = os.path.abspath(args[0]) if args else os.path.expanduser("~")
    at = path
    while at != "/" and not os.path.exists(at):
        at = os.path.dirname(at)
    disk, shm = space(at), space("/dev/shm")
    memory, free = memory_bytes()
    cpus = len(os.sched_getaffinity(0))
    quota = cpu_quota()
    say(
        {
            "identity": machine_identity(),
            "cpus": min(cpus, quota) if quota else cpus,
            "cpus_total": os.cpu_count(),
            "memory_bytes": memory,
            "memory_free_bytes": free,
            "gpus": Gpus(None).facts(),
            "path": path,
            "disk_bytes": disk[0],
            "disk_free_bytes": disk[1],
            "inodes": disk[2],
            "inodes_free": disk[3],
            "shm_bytes": shm[0],
            "shm_free_bytes": shm[1],
            "python": {"version": "%d.%d.%d" % sys.version_info[:3], "executable": sys.executable},
            "user": user_name(),
            "home": os.path.expanduser("~"),
            "torch": torch_version(),
            "at": time.time(),
            "kernel": os.uname().release,
        }
    )
