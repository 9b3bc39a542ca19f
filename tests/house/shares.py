"""The order of tests for several processes that each begin with their share of the list and, once done, take from the others' ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, islice

import pytest

SLOW_S, RUN = 8.0, 6  # what a test that is marked slow takes, about; so many of one file stay together


def in_shares(items: Sequence[pytest.Item], processes: int, seconds: Mapping[str, float]) -> list[pytest.Item]:
    """As many shares, of the same length, one behind the other: each begins with about as many seconds of slow tests, the longest first,
    and ends with quick ones, so that what is taken over at the end is short. seconds: of a slow test, by the name of its folder.
    """
    slow = [item for item in items if item.get_closest_marker("slow")]
    quick = [item for item in items if not item.get_closest_marker("slow")]
    runs: list[tuple[float, list[pytest.Item]]] = []
    for path, group in groupby(slow, key=lambda item: item.path):
        each = max((s for name, s in seconds.items() if name in path.parts), default=SLOW_S)
        tests, together = list(group), 1 if each > SLOW_S else RUN
        runs += [(each * len(part), part) for part in (tests[n:n + together] for n in range(0, len(tests), together))]
    shares: list[list[pytest.Item]] = [[] for _ in range(processes)]
    filled = [0.0] * processes
    for cost, tests in sorted(runs, key=lambda run: -run[0]):
        least = filled.index(min(filled))
        shares[least] += tests
        filled[least] += cost
    left, rest = iter(quick), len(items)
    for n, share in enumerate(shares):
        size = rest // (processes - n)  # as the list is divided
        share.extend(islice(left, max(0, size - len(share))))
        rest -= size
    return [item for share in shares for item in share] + list(left)
