"""Scripts built to make a resume silently wrong: each must come back exact, or be refused and end like a run that nobody killed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from harness import FULL, Kill, read

SCRIPTS = [s for s in (read(p) for p in sorted(Path(__file__).with_name("adversaries").glob("*.py"))) if s.short or FULL]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.name)
def test_an_adversary_is_exact_or_refused(script, killed):
    rng = random.Random(script.name)
    plans = [[Kill("image", rng.uniform(0, 0.2), 1)]]
    if FULL:
        plans += [[Kill("image", 0.1, 1), Kill("image", 0.1, 1)], [Kill("writing", 0.01)], [Kill("image", 0.4, 3), Kill("resumed", 0.01)]]
    outcomes = {t.outcome for t in killed(script, plans)}
    if script.expected == "exact":
        assert outcomes <= {"exact", "restart", "unhurt"} and "exact" in outcomes
    elif script.expected == "refused":
        assert "exact" not in outcomes


def test_there_are_enough_of_them():
    everyone = [read(p) for p in Path(__file__).with_name("adversaries").glob("*.py")]
    assert len(everyone) >= 40
    assert all(s.path.read_text().startswith("# Tries: ") for s in everyone)
