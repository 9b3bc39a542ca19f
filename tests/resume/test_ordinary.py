"""Training scripts as people write them: after a kill the same weights, the same text, the same files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from harness import FULL, Kill, read

SCRIPTS = [s for s in (read(p) for p in sorted(Path(__file__).with_name("ordinary").glob("*.py"))) if s.short or FULL]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.name)
def test_an_ordinary_script_comes_back_exact(script, killed):
    rng = random.Random(script.name)
    plans = [[Kill("image", rng.uniform(0, 0.5), 2), *([Kill("image", 0.2)] if FULL else [])]]
    if FULL:
        plans += [[Kill("time", rng.uniform(2, 6))], [Kill("image", 0.5, 4), Kill("resumed", 0.02), Kill("image", 0.1)]]
    trials = killed(script, plans, every="60steps")
    if script.expected == "exact":
        assert any(t.outcome == "exact" for t in trials), [t.line() for t in trials]


def test_there_are_enough_of_them():
    assert len(list(Path(__file__).with_name("ordinary").glob("*.py"))) >= 25
