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
    """The options of a backend that has none."""


class Leaf(ABC):
    """How the agent is started on `host`. An allocation is what holds one attempt there:
    a container, a batch job; its native id is text.

    Every method may be called from any thread and repeated after any failure.
    Methods that ask the host raise TargetError when the host does not answer:
    silence is never an answer about an allocation. `OPTIONS`:
    the dataclass of the keys that this backend adds to a
    [targets.NAME] table; it stands in a module without `from __future__ import annotations` (base/decode.py).
    """

    OPTIONS: type = NoOptions

    def __init__(self, host: Host, options: object = None) -> None:
        self.host = host
        self.options = self.OPTIONS() if options is None else options

    @abstractmethod
    def start_argv(self, argv: list[str], run_id: str, attempt: int) -> list[str]:
        """Words that run `argv` in the allocation of this attempt, with its stdin, stdout and exit code, and
        make the allocation first if there is none. Two at once make one allocation.
        What `argv` leaves running must stay until the attempt has ended."""

    @abstractmethod
    def inside_argv(self, native: str) -> list[str]:
        """Words to put before a command, so that `host.run` runs it inside.
        `native` is "" when `find` knows no allocation of the run."""

    @abstractmethod
    def find(self, run_ids: Sequence[str]) -> dict[tuple[str, int], str]:
        """(run, attempt) -> native id, for each allocation of these runs that is known, also of ended ones.
        {}: there are none."""

    @abstractmethod
    def states(self, natives: Sequence[str]) -> Mapping[str, str]:
        """Native id -> ALIVE, GONE or UNKNOWN, with one question for all.
        GONE only where nothing of it can live or start any more."""

    @abstractmethod
    def stop(self, natives: Sequence[str]) -> None:
        """End these allocations and all that runs in them, at once. Harmless when gone.
        What is gone can still be found by `find`."""

    @abstractmethod
    def release(self, natives: Sequence[str]) -> None:
        """The runs are over for good: end the allocations and give back all that is held for them.
        Harmless when gone."""

    @abstractmethod
    def capacity(self, probed: Capacity) -> Capacity:
        """What may be handed out, where the host itself has `probed`."""
