"""What every back end promises, in every moment. The truth is the run folder on the machine;
a back end only gets us there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Protocol

from stoker.base.errors import TargetError
from stoker.base.spec import Limits
from stoker.hosts.base import Progress, Stream, silent


@dataclass(frozen=True, kw_only=True)
class Observation:
    """State of a run as its machine reports it now. Unknown fields are None.

    The phases:
    - absent: no folder · staged: no attempt · claimed: the command does not run yet · running · stopping
    - ended: there is an exit.json, and no restart is planned
    - waiting: there is an exit.json, and the agent will start the next attempt
    - abandoned: no exit.json, or a planned restart, and no caretaker runs
    - unseen: the reader cannot know whether the caretakers run
    """

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
        """Parse one line of the agent; fields of a newer agent are ignored. Raises TypeError or KeyError
        for an invalid line."""
        if not isinstance(body, dict) or not isinstance(body["id"], str) or body["phase"] not in PHASES:
            raise TypeError("not an observation")
        values = {f.name: body[f.name] for f in fields(cls) if f.name in body}
        values["attempts"] = tuple(values.get("attempts") or ())
        return cls(**values)


PHASES = ("absent", "staged", "claimed", "running", "stopping", "ended", "waiting", "abandoned", "unseen")


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Resources of a machine. GPUs are dicts of `index uuid name memory_bytes used_bytes`; an unknown
    number is None."""

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
        """Parse the output of `probe`. Raises TypeError or KeyError for other input."""
        body["cpus"], body["identity"]  # an answer without these is none
        values = {f.name: body[f.name] for f in fields(cls) if body.get(f.name) is not None}
        values["gpus"] = tuple(values.get("gpus") or ())
        return cls(**values)


class GpuTaken(TargetError):
    """Another state folder, or another user of the machine, holds a GPU that the run needs."""


class NotYours(TargetError):
    """The run belongs to another state folder that uses the same machine."""


class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int, /) -> bytes | None:
        """At most `size` bytes, as soon as there are any; empty at the end."""


class LogStream(Protocol):
    """A log as it comes, from a command of its own (a Stream) or over one that several share."""

    @property
    def stdout(self) -> Readable:
        """The bytes of the log."""

    def wait(self, timeout_s: float | None = None) -> int | None:
        """0 after the end of the log; None while it goes on, after `timeout_s`."""

    def stderr_tail(self) -> str:
        """Why it could not be read."""

    def close(self) -> None:
        """No more. Twice is harmless."""

    def __enter__(self) -> LogStream:
        """Itself."""

    def __exit__(self, *exc: object) -> None:
        """Closes it."""


class Backend(ABC):
    """A way to start runs on a machine. Any thread may call any method, and may repeat it after any failure.
    All methods raise TargetError; `retry` says whether the machine may answer later. A missing answer says
    nothing about a run."""

    @abstractmethod
    def stage(self, run_id: str, folder: Path, tell: Progress = silent) -> None:
        """Copy the spooled run folder to the machine, completely or not at all. If the run folder already
        exists there, it stays unchanged.
        Calls tell(bytes sent, bytes in all) while content is sent; an exception from `tell` ends the
        transfer.
        `folder` may be moved, and may be missing if the machine already has the run. Raises NotFound if
        both are missing."""

    @abstractmethod
    def keep_data(
        self, source: Path, hash_of: Callable, tell: Progress = silent, expected: str = ""
    ) -> tuple[str, str]:
        """Copy a dataset to the machine, read-only and as it is here now. Returns its name and its folder
        there. See `Host.keep_data`."""

    @abstractmethod
    def data(self, remove: Sequence[str] = ()) -> list[dict]:
        """List the datasets on the machine. Deletes those in `remove`, and lists them a last time. Raises
        TargetError."""

    @abstractmethod
    def copy_data(self, run_id: str, number: int, at: str) -> str:
        """Copy a dataset into a run folder, where the run may write to it. Returns the path. Can be
        repeated."""

    @abstractmethod
    def missing(self, entries: Sequence[list]) -> list[list]:
        """[sha256, ...] of the files of a parcel (hosts/parcel.py) whose content `stage` would send."""

    @abstractmethod
    def ask(self, program: str, *words: str, python: str = "", timeout_s: float = 60.0) -> object:
        """Run a short Python program (standard library, 3.8) on the machine, and return the JSON of its
        last line. With `python`, this interpreter runs the program, with its packages; otherwise an
        interpreter without packages. `python` may begin with ~/, the home folder there. Raises TargetError,
        also if the interpreter does not run."""

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
        """Start an attempt and return its native id. If the attempt has already been claimed, nothing
        changes.
        Returns when the command runs or could not be started; an observation tells which. `gpus`: UUIDs
        that the run may see; if empty, its environment decides. These GPUs are leased:
        TargetError(retry=True) while another state folder or user holds one. `leases`: GPUs that the run's
        own environment names; leased if they are free. `again`: an automatic restart that the spec allows.
        Raises StateError while an earlier attempt is active, or if a later attempt exists."""

    @abstractmethod
    def poll(self, ids: Sequence[str]) -> dict[str, Observation]:
        """Return one observation for each id, with one request to the machine. A run that does not exist
        there has the phase "absent"."""

    @abstractmethod
    def look(self, asked: Mapping[str, Sequence[Sequence]]) -> dict[str, tuple[Observation, list[dict]]]:
        """Return for each run an observation and the answers to questions about its folder, with one
        request to the machine. A question is a name from the agent's QUESTIONS and its arguments. A run
        that does not exist there has no answers."""

    @abstractmethod
    def watch(self) -> Stream:
        """Stream lines of observations: all active runs at once, then one line at each change, and all
        active runs again every 10 s."""

    @abstractmethod
    def stop(
        self,
        run_id: str,
        grace_s: tuple[float, float],
        reason: str,
        attempt: int | None = None,
        gone: bool = False,
    ) -> None:
        """Request the end of the newest attempt: INT, TERM after the first grace, KILL after the second.
        Returns at once. Has no effect if the attempt has ended, never started or does not exist; a second
        stop may have shorter graces. An attempt without caretakers is settled at once.
        The reason `agent_lost` only settles an abandoned attempt. `gone`: the caller knows that the run's
        machine or container no longer exists, so an `unseen` attempt that does not react is settled too.
        `attempt`: the attempt that should have been started. If it has not begun, it is claimed and ended,
        so that a delayed `start` of it has no effect."""

    @abstractmethod
    def attach(self, run_id: str, attempt: int, out: int = 0, err: int = 0, input: bool = True) -> Stream:
        """Open the framed duplex stream of agent/door.py from these byte offsets; it ends after the exit
        frame."""

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
    ) -> LogStream:
        """Read bytes of the log `which` ("out", "err", or "both": one text of whole lines). For "both": the
        last `tail` lines, or the text after the two offsets `begins`; `offset` counts bytes of the text, and
        `limit` is not supported.
        With `follow`, the stream ends when the attempt has ended and everything was sent."""

    @abstractmethod
    def send(self, run_id: str, wanted: Sequence[tuple[str, int]]) -> Stream:
        """Stream files of the run's copy, each from an offset, as frames (agent/following.py); ends
        after the last file."""

    @abstractmethod
    def enter(self, run_id: str) -> list[str]:
        """Arguments to put before a command, so that `host.run` or `host.open` runs it with the resources,
        folder and environment of the run."""

    @abstractmethod
    def capacity(self) -> Capacity:
        """Ask the machine for its resources now."""

    @abstractmethod
    def write_limits(self, run_id: str, limits: Limits) -> None:
        """Replace limits.json; observations then contain its `seq`. Raises NotFound if the run does not
        exist."""

    @abstractmethod
    def fetch(self, run_id: str, name: str, target: Path, limit: int | None = None) -> None:
        """Copy a file or folder of the run folder to this machine, completely or not at all. Raises
        NotFound; TargetError for more than `limit` bytes."""

    @abstractmethod
    def remove(self, run_id: str) -> None:
        """Delete the run folder. Has no effect if it is gone or belongs to another state folder; raises
        StateError while the run is active."""

    @abstractmethod
    def release(self, run_id: str) -> None:
        """Release what holds the run, such as a container, because the run is not started again. Has no
        effect if nothing holds it. `remove` also calls it."""

    @abstractmethod
    def power(self, what: str, body: Mapping | None = None) -> dict:
        """Send a request about switching the machine off; `what` is an argument of the agent's verb `off`.
        Raises StateError if refused."""

    @abstractmethod
    def everything(self) -> list[Observation]:
        """Observations of all runs on the machine, also of other state folders."""

    @abstractmethod
    def adopt(self, ids: Sequence[str]) -> list[str]:
        """Make these runs belong to this state folder, as far as they exist. The former owner can then no
        longer stop, start or remove them."""

    @abstractmethod
    def close(self) -> None:
        """Close what this object opened, including its host. Runs continue."""
