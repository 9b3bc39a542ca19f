"""What one backend adds to `Core`: how an allocation is made, found, asked about and ended.

docs/contributing/add-a-backend.md has an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stoker.backends.base import Capacity
from stoker.hosts.base import Host

ALIVE, GONE, UNKNOWN = "alive", "gone", "unknown"  # the states of an allocation


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """Options of a backend without options."""


class Leaf(ABC):
    """Defines how the agent is started on `host`. An allocation (a container, a batch job) contains one
    attempt on the machine; its native id is a text.
    Any thread may call any method and repeat it after any failure. Methods that ask the host raise
    TargetError if the host does not answer: a missing answer says nothing about an allocation. `OPTIONS`:
    the dataclass of the keys that this backend adds to a [targets.NAME] table; its module must not use
    `from __future__ import annotations` (base/decode.py)."""

    OPTIONS: type = NoOptions

    def __init__(self, host: Host, options: object = None) -> None:
        self.host = host
        self.options = self.OPTIONS() if options is None else options

    @abstractmethod
    def start_argv(self, argv: list[str], run_id: str, attempt: int) -> list[str]:
        """Command that runs `argv` in the allocation of this attempt, with its stdin, stdout and exit
        code. The command makes the allocation if it does not exist; two such commands at once make one
        allocation. Processes that `argv` starts must stay until the attempt has ended."""

    @abstractmethod
    def inside_argv(self, native: str) -> list[str]:
        """Arguments to put before a command, so that `host.run` runs it inside. `native` is "" if `find`
        knows no allocation of the run."""

    @abstractmethod
    def find(self, run_ids: Sequence[str]) -> dict[tuple[str, int], str]:
        """(run, attempt) -> native id of each known allocation of these runs, also of ended ones; {} if
        there are none."""

    @abstractmethod
    def states(self, natives: Sequence[str]) -> Mapping[str, str]:
        """Native id -> ALIVE, GONE or UNKNOWN, with one request for all. GONE only if no process of the
        allocation exists or can still start."""

    @abstractmethod
    def stop(self, natives: Sequence[str]) -> None:
        """End these allocations and all their processes at once. Has no effect on allocations that are
        gone. `find` may still return them."""

    @abstractmethod
    def release(self, natives: Sequence[str]) -> None:
        """End the allocations and release everything that they use, because their runs are removed. Has no
        effect on allocations that are gone."""

    @abstractmethod
    def capacity(self, probed: Capacity) -> Capacity:
        """Resources that runs may use, given the resources `probed` of the host."""
