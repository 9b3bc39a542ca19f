"""The cable of a machine is pulled out while a run is sent there, starts, runs, is followed, is stopped, and while its files come home."""

from __future__ import annotations

import pytest
from benchmarks import cables, far
from benchmarks.ground import Ground
from parts import root_only

CUTS = (  # a machine each, side by side
    (("staging in", 4.0), ("run", 1.0), ("staging out", 4.0)),
    (("start", 3.0), ("log", 2.0), ("stop", 5.0)),
    (("staging in", 1.0), ("log", 11.0), ("staging out", 1.0)),
    (("start", 1.0), ("run", 20.0), ("stop", 1.0)),
)


@root_only
@pytest.mark.real("sshd", "ip", "tc")
def test_twelve_cuts_lose_nothing_and_start_nothing_twice(ground: Ground):
    with far.machines(ground, len(CUTS)) as machines:
        journeys = [cables.Journey(ground, machines[n], n, cuts, f"m{n}") for n, cuts in enumerate(CUTS)]
        cables.side_by_side([[each] for each in journeys])
    assert not [text for each in journeys for text in each.wrong]
    assert sum(len(each.cuts) for each in journeys) == 12 and all(each.back_s for each in journeys)
