"""Scripts whose loop belongs to somebody else, Accelerate, Lightning, the Trainer of transformers: exact after a kill, or refused; never wrong.

They run where these packages are installed, which none of the project's own installations does."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from harness import FULL, Kill, read

SCRIPTS = [read(p) for p in sorted(Path(__file__).with_name("frameworks").glob("*.py"))]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.name)
def test_a_frameworks_loop_is_exact_or_refused(script, killed):
    rng = random.Random(script.name)
    plans = [[Kill("image", rng.uniform(0, 0.3), 2), Kill("image", 0.1)]]
    if FULL:
        plans += [[Kill("time", rng.uniform(4, 9))], [Kill("writing", 0.01)], [Kill("image", 0.3, 4), Kill("resumed", 0.02), Kill("image", 0.1)]]
    outcomes = {t.outcome for t in killed(script, plans, every=script.every or "100steps")}
    if script.expected == "exact":
        assert "exact" in outcomes
