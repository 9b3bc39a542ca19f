"""The process backend: the agent is a plain process of the host.
It serves this machine and any machine behind ssh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stoker.backends.base import Capacity
from stoker.backends.leaf import UNKNOWN, Leaf


class ProcessLeaf(Leaf):
    """Starts runs as plain processes. The agent knows everything about these processes, so the leaf holds
    nothing."""

    def start_argv(self, argv: list[str], run_id: str, attempt: int) -> list[str]:
        return argv

    def inside_argv(self, native: str) -> list[str]:
        return []

    def find(self, run_ids: Sequence[str]) -> dict[tuple[str, int], str]:
        return {}

    def states(self, natives: Sequence[str]) -> Mapping[str, str]:
        return dict.fromkeys(natives, UNKNOWN)

    def stop(self, natives: Sequence[str]) -> None:
        pass

    def release(self, natives: Sequence[str]) -> None:
        pass

    def capacity(self, probed: Capacity) -> Capacity:
        return probed
