"""The order of tests for several processes: none is lost, the slow ones are dealt evenly and come first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from shares import SLOW_S, in_shares


@dataclass(frozen=True)
class Item:
    """As much of a collected test as the order looks at."""

    path: Path
    number: int
    slow: bool

    def get_closest_marker(self, name: str) -> bool:
        return self.slow and name == "slow"


def items(**files: tuple[int, bool]) -> list[Item]:
    return [Item(Path("tests", *name.split("__")), n, slow) for name, (many, slow) in files.items() for n in range(many)]


@pytest.mark.parametrize("processes", [2, 3, 5, 6])
@pytest.mark.parametrize("quick", [0, 7, 500])
def test_nothing_is_lost_and_each_share_has_its_slow_ones(processes, quick):
    given = items(examples__digits=(3, True), e2e__kills=(31, True), hooks__walk=(14, True), base__units=(quick, False))
    made = in_shares(given, processes, {"examples": 60.0})
    assert sorted(made, key=given.index) == given
    at, loads = 0, []
    for n in range(processes):
        size = (len(made) - at) // (processes - n)
        share, at = made[at:at + size], at + size
        loads.append(sum((60.0 if "examples" in item.path.parts else SLOW_S) * item.slow for item in share))
        if quick == 500:
            assert [item.slow for item in share] == sorted((item.slow for item in share), reverse=True)
    if quick == 500:
        assert max(loads) - min(loads) <= 60.0
