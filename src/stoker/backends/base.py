"""What every back end promises, in every moment. The truth is the run folder on the machine;
a back end only gets us there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from stoker.base.errors import TargetError
from stoker.base.spec import Limits
from stoker.hosts.base import Progress, Stream, silent


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What the machine says of one run now; docs/reference/contracts.md lists the phases.
    Fields it does not know are None."""

    id: str
    phase: str  # absent | staged | claimed | running | stopping | ended | waiting | abandoned | unseen
    attempt: int | None = None  # the newest
    attempts: tuple[int, ...] = ()
    started_at: float | None = None
    heartbeat_at: float | None = None
    heartbeat_age_s: float | None = None
    used_s: float = 0.0  # over all attempts
    limits_seq: int | None = None  # of the limits that the agent holds it to
    waits_for_input: bool = False
    stalled: dict | None = None  # since when, and where each rank and worker waits
    out_bytes: int = 0
    err_bytes: int = 0
    telemetry: dict | None = None  # the newest sample
    exit: dict | None = None  # exit.json of the newest attempt
    keep: dict | None = None  # a `keep` typed on the machine
    run_pid: int | None = None
    broken: dict[str, str] = field(default_factory=dict)  # files of the run that cannot be used: name -> why
    owner: dict | None = None  # id and hint of the state folder that it belongs to

    @classmethod
    def from_json(cls, body: dict) -> Observation:
        """From one line of the agent; fields of a newer agent are passed over.
        Raises TypeError, KeyError for what is not one."""
        if not isinstance(body, dict) or not isinstance(body["id"], str) or body["phase"] not in PHASES:
            raise TypeError("not an observation")
        values = {f.name: body[f.name] for f in fields(cls) if f.name in body}
        values["attempts"] = tuple(values.get("attempts") or ())
        return cls(**values)


PHASES = ("absent", "staged", "claimed", "running", "stopping", "ended", "waiting", "abandoned", "unseen")


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What the machine has for us. GPUs are dicts of `index uuid name memory_bytes used_bytes`;
    a number it does not know is None."""

    cpus: float = 1  # that we may use: affinity and cgroup quota
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    gpus: tuple[dict, ...] = ()
    disk_bytes: int | None = None
    disk_free_bytes: int | None = None
    inodes_free: int | None = None
    shm_bytes: int | None = None
    identity: dict = field(default_factory=dict)  # hostname, boot id, start of pid 1
    python: dict = field(default_factory=dict)  # version, executable
    torch: str = ""  # the version that is installed beside that python
    clock_offset_s: float | None = None  # by how much its clock is ahead of ours

    @classmethod
    def from_json(cls, body: dict) -> Capacity:
        """From what `probe` prints. Raises TypeError, KeyError for what is not that."""
        body["cpus"], body["identity"]  # an answer without these is none
        values = {f.name: body[f.name] for f in fields(cls) if body.get(f.name) is not None}
        values["gpus"] = tuple(values.get("gpus") or ())
        return cls(**values)


class GpuTaken(TargetError):
    """Another state folder, or another user of the machine, holds a GPU that the run was to get."""


class NotYours(TargetError):
    """The run belongs to another state folder, which works on the same machine."""


class Backend(ABC):
    """A way to hold compute. May be used from any thread; every method may be repeated after any failure.

    All raise TargetError: `retry` says whether the machine may be back later.
    Silence is never an answer about a run.
    """

    @abstractmethod
    def stage(self, run_id: str, folder: Path, tell: Progress = silent) -> None:
        """Lay the spooled run folder out on the machine, whole or not at all. Twice is harmless:
        what is there stays as it is.

        tell(bytes sent, bytes in all) is called while content is sent,
        and may end that by an error of its own.

        `folder` is given away: it may be moved, and need no longer exist when the machine has the run
        already. Raises NotFound when neither is there.
        """

    @abstractmethod
    def keep_data(
        self, source: Path, hash_of: Callable, tell: Progress = silent, expected: str = ""
    ) -> tuple[str, str]:
        """See that a dataset lies there, read-only and as it is here now; its name and the folder there.
        See `Host.keep_data`."""

    @abstractmethod
    def data(self, remove: Sequence[str] = ()) -> list[dict]:
        """The datasets that lie there; those in `remove` are deleted and told once more.
        Raises TargetError."""

    @abstractmethod
    def copy_data(self, run_id: str, number: int, at: str) -> str:
        """Copy a dataset into a run folder, where it may be written to; the path. Twice is harmless."""

    @abstractmethod
    def missing(self, entries: Sequence[list]) -> list[list]:
        """[sha256, ...] of the files of a parcel (hosts/parcel.py) whose content `stage` would send."""

    @abstractmethod
    def ask(self, program: str, *words: str, python: str = "", timeout_s: float = 60.0) -> object:
        """What a short Python program (standard library, 3.8) prints there as JSON, as its last line.
        `python`: that interpreter runs it, with its packages; else one without any.
        Raises TargetError, also for an interpreter that does not run."""

    @abstractmethod
    def start(
        self,
        run_id: str,
        attempt: int,
        gpus: Sequence[str] = (),
        again: bool = False,
        *,
        leases: Sequence[str] = (),
    ) -> str:
        """Start an attempt and return its native id. Twice is harmless:
        an attempt is claimed once, the loser changes nothing.

        Returns when its command runs or has failed to (which is an observation). `gpus`:
        UUIDs that it may see; none = as its environment says. They are leased:
        TargetError(retry=True) while another state folder or user of the machine has them. `leases`:
        those that its own environment names; leased where that can be. `again`:
        it is one of the automatic restarts that the spec allows. Raises
        StateError while an earlier attempt lives or a later one has been made.
        """

    @abstractmethod
    def poll(self, ids: Sequence[str]) -> dict[str, Observation]:
        """One observation for each id, with one question to the machine.
        A run that is gone is an observation ("absent")."""

    @abstractmethod
    def look(self, asked: Mapping[str, Sequence[Sequence]]) -> dict[str, tuple[Observation, list[dict]]]:
        """Run -> an observation and an answer to each question about its folder, with one question to the
        machine. Questions: a name of the agent's QUESTIONS and its arguments.
        A run that is gone has no answers."""

    @abstractmethod
    def watch(self) -> Stream:
        """Lines of observations: all live runs at once, one at each change, all live ones again each 10 s."""

    @abstractmethod
    def stop(
        self,
        run_id: str,
        grace_s: tuple[float, float],
        reason: str,
        attempt: int | None = None,
        gone: bool = False,
    ) -> None:
        """Wish the end of the newest attempt: INT, TERM after the first grace, KILL after the second.
        Returns at once. Harmless when it has ended, was never started or is gone;
        a second stop may be shorter. An attempt without caretakers is settled here and now.

        The reason `agent_lost` only settles an abandoned attempt; any other is left alone. `gone`:
        what held the run (its machine, its container) is known to be gone, so an attempt that is `unseen` and
        does not obey is settled too.

        `attempt`: the one that was to be started.
        If it has not begun it is claimed and ended, so that a `start` of it which somebody sent and nobody
        answered for comes too late."""

    @abstractmethod
    def attach(self, run_id: str, attempt: int, out: int = 0, err: int = 0, input: bool = True) -> Stream:
        """The framed duplex stream of docs/reference/contracts.md from these byte offsets;
        it ends after the exit frame."""

    @abstractmethod
    def read(  # noqa: PLR0917
        self,
        run_id: str,
        attempt: int,
        which: str,
        offset: int = 0,
        limit: int | None = None,
        follow: bool = False,
        *,
        tail: int | None = None,
        begins: tuple[int, int] = (0, 0),
    ) -> Stream:
        """Bytes of the log `which` ("out", "err", or "both" as one text in whole lines). Of "both":
        `tail` lines before the end, or what lies behind `begins` in the two logs;
        `offset` counts bytes of the text, and there is no `limit`.
        With `follow` it ends when the attempt has ended and all was sent."""

    @abstractmethod
    def send(self, run_id: str, wanted: Sequence[tuple[str, int]]) -> Stream:
        """Files of the run's copy, each from an offset, as frames (docs/reference/contracts.md);
        ends after the last."""

    @abstractmethod
    def enter(self, run_id: str) -> list[str]:
        """Words to put before a command, so that `host.run` or `host.open` runs it where the run is:
        its resources, folder, environment."""

    @abstractmethod
    def capacity(self) -> Capacity:
        """What the machine has, asked now."""

    @abstractmethod
    def write_limits(self, run_id: str, limits: Limits) -> None:
        """Replace limits.json; the agent echoes its `seq` in observations.
        Raises NotFound when the run is gone."""

    @abstractmethod
    def fetch(self, run_id: str, name: str, target: Path, limit: int | None = None) -> None:
        """Copy a file or folder of the run folder here, whole or absent. Raises NotFound;
        TargetError for more than `limit` bytes."""

    @abstractmethod
    def remove(self, run_id: str) -> None:
        """Delete the run folder. Harmless when gone, or another's by now;
        raises StateError while the run lives."""

    @abstractmethod
    def release(self, run_id: str) -> None:
        """The run is over for good: give back what holds it, such as a container.
        Harmless when nothing does. `remove` does it too."""

    @abstractmethod
    def power(self, what: str, body: Mapping | None = None) -> dict:
        """Say or ask something about switching the machine off;
        `what` is a word of the agent's verb `off`. StateError when refused."""

    @abstractmethod
    def everything(self) -> list[Observation]:
        """An observation of each run that is there, whosever it is."""

    @abstractmethod
    def adopt(self, ids: Sequence[str]) -> list[str]:
        """Make these runs ours; those that are there.
        Their owner may neither stop, start nor remove them any more."""

    @abstractmethod
    def close(self) -> None:
        """End what this object opened, its host included. Runs go on."""
