"""A run as the store knows it: what was asked, what is wished for now, and the facts that were seen last."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stoker.base.spec import Limits, Spec
from stoker.base.state import State

WISH_RUN = "run"  # it shall run until it ends
WISH_STOP = "stop"  # it shall end
WISH_RM = "rm"  # it shall end, and its folder and row shall go


@dataclass(frozen=True, kw_only=True)
class Run:
    """One row of the table `runs`. Times are Unix timestamps in seconds."""

    id: str
    name: str
    spec: Spec
    state: State = State.PENDING
    wish: str = WISH_RUN
    attempt: int = 1  # the newest attempt that is wanted or was seen
    # where the present series of automatic restarts began: each `start` opens a new one
    first_attempt: int = 1
    settled_attempt: int = 0  # the attempt that the plane had to settle since its caretakers were dead
    reason: str | None = None
    exit_code: int | None = None
    target: str = "local"
    created_at: float = 0.0
    queued_at: float = 0.0  # since when it waits for its turn; decides between equals
    started_at: float | None = None  # start of the newest attempt
    ended_at: float | None = None
    restart_at: float | None = None
    priority: int = 0
    gpus: int = 0
    slots: int = 0
    gpu_uuids: tuple[str, ...] = ()  # what it holds while it holds compute
    reachability: str = "unknown"
    pinned: bool = False
    limits: Limits = field(default_factory=Limits)
    limits_written: int = 0  # the sequence number that the machine has
    kept_at: float = 0.0  # time of the newest `keep` typed on the machine that was obeyed
    used_s: float = 0.0
    stop_grace: tuple[float, float] | None = None  # None: the one in the spec
    stop_asked: int = 0  # number of the newest `stop` a person asked for
    stop_sent: int = 0  # number of the newest `stop` the machine was told
    fingerprint: str = ""
    folder_hash: str = ""
    command_hash: str = ""
    in_place: bool = False  # it works in the user's own folder on this machine
    name_stem: str = ""
    name_number: int = 0
    evidence: dict = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    version: int = 1

    def with_(self, **changes: Any) -> Run:
        """A copy with some fields changed."""
        return replace(self, **changes)

    @property
    def grace_s(self) -> tuple[float, float]:
        """Seconds to wait after SIGINT and after SIGTERM."""
        return self.stop_grace or self.spec.grace_s


@dataclass(frozen=True)
class Holding:
    """Resources of a machine that one run holds."""

    id: str
    name: str
    gpus: int
    slots: int
    gpu_uuids: tuple[str, ...]


def folder_key(folder: str) -> str:
    """Index key of a folder, because a path may hold bytes that a database text cannot."""
    return hashlib.sha256(folder.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def command_key(command: Sequence[str]) -> str:
    """Index key of a command."""
    return hashlib.sha256(json.dumps(list(command)).encode()).hexdigest()[:32]
