"""SIGKILL at random times, in trainings of many kinds: they end with the bits of undisturbed ones."""

from __future__ import annotations

import pytest
from enginekit import Training, differences, kill_moments, timed

pytestmark = [pytest.mark.slow, pytest.mark.inside, pytest.mark.timeout(300)]

# Each pair of values of two options is in one of these at least.
CELLS = [
    {"workers": 0, "accumulate": 1, "dropout": True, "norm": True},
    {"workers": 1, "accumulate": 3, "precision": "bf16", "ema": True, "sampler": True},
    {"workers": 3, "accumulate": 1, "plateau": True, "gan": True, "dropout": True},
    {"workers": 0, "accumulate": 3, "precision": "bf16", "plateau": True, "norm": True, "gan": True, "ema": True},
    {"workers": 1, "accumulate": 1, "dropout": True, "norm": True, "ema": True, "plateau": True, "sampler": True, "gan": True},
    {"workers": 3, "accumulate": 3, "precision": "bf16", "dropout": True, "norm": True, "sampler": True, "clip": 1.0},
    {"workers": 0, "accumulate": 1, "precision": "fp16", "dropout": True, "ema": True, "sampler": True},
    {"workers": 0, "accumulate": 3, "ranks": 2, "dropout": True, "norm": True, "sampler": True},
    {"workers": 1, "accumulate": 1, "ranks": 2, "precision": "bf16", "gan": True, "ema": True, "plateau": True, "norm": True},
    {"workers": 0, "accumulate": 1, "ranks": 4, "dropout": True, "gan": True, "ema": True},
    {"workers": 1, "accumulate": 3, "ranks": 4, "precision": "bf16", "plateau": True, "sampler": True, "norm": True, "samples": 58},
    {"workers": 3, "accumulate": 1, "ranks": 2, "ema": True, "sampler": True, "clip": 0.5, "stop_early": True},
    {"trainer": True, "workers": 1, "accumulate": 3},
    {"trainer": True, "ranks": 2, "plateau": True, "epochs": 5},
]
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
