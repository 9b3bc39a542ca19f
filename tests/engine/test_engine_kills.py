"""SIGKILL at random times, in trainings of many kinds: they end with the bits of undisturbed ones."""

from __future__ import annotations

import pytest
from enginekit import CELLS, Training, differences, kill_moments, timed

pytestmark = [pytest.mark.slow, pytest.mark.inside, pytest.mark.timeout(300)]

KILLS = 2


@pytest.mark.parametrize("number", range(len(CELLS)), ids=lambda n: "-".join(f"{k}{v}" for k, v in CELLS[n].items()))
def test_a_killed_training_ends_as_an_undisturbed_one(nursery, tmp_path, number):
    straight, span_s = timed(Training(nursery, tmp_path / "straight", CELLS[number]))
    control = Training(nursery, tmp_path / "control", CELLS[number]).run()
    assert not differences(straight, control), "not deterministic: nothing below proves anything"
    killed = Training(nursery, tmp_path / "killed", CELLS[number])
    for after_s in kill_moments(number, span_s * 0.9, KILLS):
        killed.killed_after(after_s)
    assert not differences(straight, killed.run()), killed.text()
