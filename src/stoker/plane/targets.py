"""Names of places to run -> back ends. Which kinds there are is said in backends/registry.py."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stoker.backends import registry
from stoker.backends.base import Backend, Capacity, Observation
from stoker.base import machines, rundir
from stoker.base.config import Config, Home, TargetConfig, load_config
from stoker.base.errors import InvalidSpec, NotFound, StokerError
from stoker.base.owner import owner_of
from stoker.base.removal import clear
from stoker.base.units import format_size
from stoker.hosts.base import Progress, silent
from stoker.hosts.local import LocalHost
from stoker.hosts.ssh import SshHost
from stoker.plane import clocks, resume
from stoker.plane.capacity import Room

GPUS_OLD_S = 2.0  # who uses a GPU may change at any moment
BUSY_BYTES, BUSY_SHARE = 10**9, 0.1  # of a GPU's memory: more is somebody's work
CAPACITY_OLD_S = 600.0  # GPUs come and go rarely


@dataclass
class Target:
    """A machine to run on. `root` contains runs/ there; `here`: whether that folder is on this machine.
    `kept`: folder on this machine with additional data of runs: lists of files that were sent, and copied
    files."""

    name: str
    config: TargetConfig
    backend: Backend
    root: str
    here: bool
    kept: Path
    order: dict | None = None  # how it is switched off, as its agent is told
    archive: Backend | None = None  # reads what `keep_logs` has copied
    # id and hint of our state folder, where others may work on the machine too
    owner: dict[str, str] | None = None

    def __post_init__(self) -> None:
        self._capacity: Capacity | None = None
        # run id -> bytes sent, bytes in all, bytes a second
        self.sending: dict[str, tuple[int, int, float]] = {}
        self._asked = 0.0
        self.ahead_s = 0.0  # of the clock here is the clock there, where that is more than a moment

    def is_ours(self, seen: Observation) -> bool:
        """False for a run of another state folder."""
        return not self.owner or not seen.owner or seen.owner.get("id") == self.owner["id"]

    def by_ours(self, seen: Observation) -> Observation:
        """The observation with times of the local clock."""
        return clocks.by_ours(seen, self.ahead_s)

    def learn_clock(self, found: Iterable[Observation], asked: float, answered: float) -> None:
        """Learn the clock offset from the answers to a question; see `clocks.offset_of`."""
        offsets = (
            []
            if self.here
            else [each for seen in found if (each := clocks.offset_of(seen, asked, answered)) is not None]
        )
        if offsets:
            self.ahead_s = clocks.settled(self.ahead_s, offsets[-1])

    def run_folder(self, run_id: str) -> str:
        """Path of the run folder on that machine."""
        return f"{self.root}/runs/{run_id}"

    def stage(self, run_id: str, folder: Path, tell: Progress = silent) -> None:
        """Send the spooled run folder to the machine. Keeps the record of its code here first, because files
        that come back may replace sent files, and because the code is shown while the machine is off."""
        if not self.here:
            self._keep_code(run_id, folder / rundir.CODE)
        self.backend.stage(run_id, folder, tell)

    def _keep_code(self, run_id: str, sent: Path) -> None:
        kept = self.kept / run_id / rundir.CODE
        for name in (rundir.MANIFEST, rundir.DIFF, rundir.COMMIT):  # code_reader looks for the last
            if (sent / name).is_file():
                kept.mkdir(mode=0o700, parents=True, exist_ok=True)
                rundir.write_whole(kept / name, (sent / name).read_bytes(), 0o600)

    def code_reader(self, run_id: str) -> Backend:
        """Where to read the record of the run's code: on this machine, if `stage` has kept it."""
        kept = (self.kept / run_id / rundir.CODE / rundir.COMMIT).is_file()
        return self.archive if self.archive is not None and kept else self.backend

    def sent(self, run_id: str) -> dict[str, dict]:
        """The files of the run's copy at its start: path -> `{"path", "size", "mtime_ns", "sha256"?}`."""
        folder = Path(self.run_folder(run_id)) if self.here else self.kept / run_id
        body = rundir.read_json(folder / rundir.CODE / rundir.MANIFEST)
        if body is None and not self.here:
            body = rundir.read_json(folder / rundir.MANIFEST)  # sent by an older Stoker
        return {each["path"]: each for each in (body or {}).get("files") or () if each and each.get("path")}

    def keep_logs(self, run_id: str, limit: int | None = None) -> None:
        """Copy the logs and records of the attempts to this machine, and how they resumed, which joins the
        logs; an earlier copy stays until the new copy is complete.
        Raises TargetError, also for more than `limit` bytes."""
        folder, coming = self.kept / run_id, f"{rundir.ATTEMPTS}.coming"
        clear(folder, rundir.RESUME)
        (folder / rundir.RESUME).mkdir(mode=0o700, parents=True)
        clear(folder, coming)
        with contextlib.suppress(NotFound):
            self.backend.fetch(run_id, resume.STATE, folder / resume.STATE, limit)
        try:
            self.backend.fetch(run_id, rundir.ATTEMPTS, folder / coming, limit)
            clear(folder, rundir.ATTEMPTS)
            (folder / coming).rename(folder / rundir.ATTEMPTS)
        finally:
            clear(folder, coming)

    def reader(self, run_id: str, attempt: int) -> Backend:
        """Where to read an attempt: the copy on this machine, if the attempt had ended when it was copied."""
        return (
            self.archive
            if self.archive is not None and is_copied(self.kept, run_id, attempt)
            else self.backend
        )

    def local_folder(self, run_id: str, attempt: int) -> Path | None:
        """The run folder, or the copy that `keep_logs` made of its attempts up to this one, if it is on this
        machine."""
        if self.here:
            return Path(self.run_folder(run_id))
        copied = is_copied(self.kept, run_id, attempt)
        # copies of older versions do not tell how the attempts resumed
        whole = attempt == 1 or (self.kept / run_id / rundir.RESUME).is_dir()
        return self.kept / run_id if copied and whole else None

    def remove(self, run_id: str) -> None:
        """Delete the run folder, and the data of the run on this machine."""
        self.backend.remove(run_id)
        clear(self.kept, run_id)

    def capacity(self, max_age_s: float = CAPACITY_OLD_S) -> Capacity:
        """Resources of the machine; asked again if the last answer is too old. Raises TargetError."""
        if self._capacity is None or time.monotonic() - self._asked > max_age_s:
            self._capacity = self.backend.capacity()
            if not self.here and self._capacity.clock_offset_s is not None:
                self.ahead_s = clocks.settled(self.ahead_s, self._capacity.clock_offset_s)
            self._asked = time.monotonic()
        return self._capacity

    def room(self, ask: bool) -> Room:
        """Resources that runs may use. GPUs are unknown until the machine has answered; `ask` allows
        waiting for the answer."""
        if ask:
            self.capacity()
        known = self._capacity
        gpus = None if known is None else known.gpus
        if gpus is not None and self.config.gpus is not None:
            gpus = gpus[:self.config.gpus]
        if not gpus:
            return Room(
                gpus=() if self.config.gpus == 0 or gpus is not None else None, slots=self.config.slots
            )
        return Room(
            gpus=tuple(g["uuid"] for g in gpus),
            slots=self.config.slots,
            index={g["uuid"]: str(g.get("index")) for g in gpus},
            busy={g["uuid"]: words for g in gpus if (words := _used_by(g))},
            leased={g["uuid"]: str(g["leased"]) for g in gpus if g.get("leased")},
        )

    def age_s(self) -> float:
        """Age of the machine's last answer."""
        return time.monotonic() - self._asked


def is_copied(kept: Path, run_id: str, attempt: int) -> bool:
    """True if `keep_logs` has copied an ended attempt."""
    return (kept / run_id / rundir.ATTEMPTS / str(attempt) / rundir.EXIT).is_file()


def _used_by(gpu: dict) -> str:
    """What uses a GPU, in words; "" for one that is free:
    no process computes on it, and hardly any of its memory is used."""
    used, whole = gpu.get("used_bytes") or 0, gpu.get("memory_bytes") or 0
    pids = ", ".join(str(pid) for pid in (gpu.get("pids") or ())[:3])
    if not pids and used <= BUSY_BYTES and (not whole or used <= BUSY_SHARE * whole):
        return ""
    who = f"process {pids}" if pids else "another program"
    return f"{who} ({format_size(used)} of {format_size(whole)})"


class Targets:
    """The targets of config.toml, which may change at any time."""

    def __init__(self, where: Home) -> None:
        self.home = where
        self._lock = threading.Lock()
        self._made: dict[str, Target] = {}
        self._stamp: object = ()
        self._config = Config()
        self.config()

    def config(self) -> Config:
        """The present settings. Raises InvalidSpec for an unreadable file; the old settings stay in use."""
        try:
            info = self.home.config.stat()
            stamp: object = (info.st_mtime_ns, info.st_size, info.st_ino)
        except OSError:
            stamp = None
        with self._lock:
            if stamp != self._stamp:
                self._config = load_config(self.home)
                self._stamp = stamp
            return self._config

    def get(self, name: str) -> Target:
        """The target of this name. Raises InvalidSpec for an unknown name."""
        config = self.config().targets.get(name)
        if config is None:
            known = ", ".join(self._config.targets)
            raise InvalidSpec(
                f"There is no machine '{name}'.",
                hint=f"Known machines: {known}. To add a machine: stoker machine add {name} USER@HOST",
            )
        with self._lock:
            made = self._made.get(name)
            if made is None or made.config != config:
                made = self._made[name] = _make(self.home, config)
            return made

    def copied(self, run_id: str, attempt: int) -> Backend | None:
        """A reader of the copied attempt that `keep_logs` made, independent of config.toml; None without a
        copy."""
        return _archive(self.home) if is_copied(self.home.runs, run_id, attempt) else None

    def mine(self, name: str) -> str:
        """The id of this state folder if others may use that machine too; "" otherwise."""
        with contextlib.suppress(StokerError):
            return (self.get(name).owner or {}).get("id", "")
        return ""

    def names(self) -> list[str]:
        """All names; if the file is broken now, the last known names."""
        try:
            return list(self.config().targets)
        except StokerError:
            return list(self._config.targets)

    def close(self) -> None:
        """Close the hosts that were opened."""
        with self._lock:
            made, self._made = list(self._made.values()), {}
        for target in made:
            target.backend.close()


def _make(where: Home, config: TargetConfig) -> Target:
    if config.host:
        root = config.root or "~/.stoker"
        owner = owner_of(where)
        order = _order(config, owner)
        backend = registry.make(
            config.backend, SshHost(config.host), root, config.options, owner=owner, order=order
        )
        return Target(
            config.name,
            config,
            backend,
            root,
            here=False,
            kept=where.runs,
            owner=owner,
            order=order,
            archive=_archive(where),
        )
    root = str(Path(config.root).expanduser()) if config.root else str(where.path)
    backend = registry.make(config.backend, LocalHost(), root, config.options)
    return Target(config.name, config, backend, root, here=True, kept=where.runs)


def _archive(where: Home) -> Backend:
    return registry.make("process", LocalHost(), str(where.path))


def _order(config: TargetConfig, owner: dict[str, str]) -> dict | None:
    """How the machine is to be switched off, as its agent is told."""
    if not config.off:
        return None
    return {
        "owner": owner,
        "command": machines.off_words(config.off),
        "latest_s": config.off_latest_s,
        "after_s": config.off_after_s,
        "disk_survives": config.disk_survives,
    }
