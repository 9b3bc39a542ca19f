"""The statistics of the accuracy guard: what passes, what must not, and how often chance decides."""

import json
import os
import random
import sys
from pathlib import Path

import pytest

from stoker.tune import guard, trial


def rate(harm: float, *, noise: float, level: float = 2.0, deviation: float = 0.05, rounds: int = 1000) -> float:
    """How often `harm` passes, in pairs whose differences have the deviation `noise`: after three pairs, or else after six."""
    draw = random.Random(1)
    passed = 0
    for _ in range(rounds):
        without = [draw.gauss(level, deviation) for _ in range(6)]
        with_it = [w + draw.gauss(harm, noise) for w in without]
        passed += any(guard.compare(without[:n], with_it[:n], 0.5).shown for n in (3, 6))
    return passed / rounds


def test_a_harm_as_large_as_another_seed_passes_one_time_in_twenty() -> None:
    assert rate(0.05, noise=0.0) < 0.06
    assert rate(0.05, noise=0.02) < 0.03
    assert rate(0.05, noise=0.1) < 0.06
    assert rate(0.1, noise=0.02) < 0.005


def test_what_is_as_good_is_rarely_missed() -> None:
    assert rate(0.0, noise=0.005) > 0.98
    assert rate(0.0, noise=0.02) > 0.8
    assert rate(0.0, noise=0.005, deviation=0.0) > 0.9  # the margin is half a per cent


def test_noise_is_no_proof() -> None:
    assert rate(0.0, noise=0.2) < 0.2


def test_seeds_that_differ_much_do_not_excuse_everything() -> None:
    c = guard.compare([1.0, 2.0, 3.0], [1.3, 2.3, 3.3], fall=1.0)
    assert not c.shown
    assert c.harmful


def test_equal_losses_pass_and_small_ones_too() -> None:
    assert guard.compare([1.0, 1.1, 1.2], [1.0, 1.1, 1.2]).shown
    assert guard.compare([-5.0, -5.0, -5.0], [-4.99, -4.99, -4.99]).shown
    assert not guard.compare([-5.0, -5.0, -5.0], [-4.9, -4.9, -4.9]).shown


def lines(cosine: float | None, n: int = 4, **more: object) -> list[dict]:
    return [{"same": True, "cosine": cosine, "finite": True, "null": 1.0, **more} for _ in range(n)]


@pytest.mark.parametrize(("told", "knob", "state"), [
    (lines(0.9995), "bf16", guard.SAFE),
    (lines(0.9995), "tf32", guard.SAFE),
    (lines(0.995), "tf32", guard.HARMFUL),
    (lines(0.98), "bf16", guard.HARMFUL),
    (lines(0.9995)[:3], "bf16", guard.UNSHOWN),
    (lines(0.9995, finite=False), "bf16", guard.HARMFUL),
    (lines(None), "bf16", guard.HARMFUL),
    (lines(0.9995, null=0.9), "bf16", guard.UNSHOWN),
    ([{"same": False}] * 12, "bf16", guard.UNSHOWN),
    ([], "bf16", guard.UNSHOWN),
])
def test_gradients(told: list[dict], knob: str, state: str) -> None:
    assert guard.gradients(told, knob)[0] == state


def test_what_the_guard_costs_is_weighed_against_what_it_brings() -> None:
    long = guard.plan(ms=50, ratio=0.6, setup_s=3, remaining_s=7200)
    assert not long.why
    assert guard.STEPS_MIN <= long.steps <= guard.STEPS_MAX
    assert long.seconds < 7200 * 0.4
    short = guard.plan(ms=50, ratio=0.95, setup_s=3, remaining_s=600)
    assert "saves" in short.why
    assert guard.plan(ms=20_000, ratio=0.6, setup_s=3).why
    assert guard.plan(ms=5, ratio=0.6, setup_s=1, epoch_steps=300).steps <= 300


def test_settings_are_merged_at_each_depth() -> None:
    kept = {"loaders": {"a": {"workers": 2}}, "threads": 2}
    assert guard.merged(kept, {"loaders": {"a": {"pin": True}}, "precision": "bf16"}) == {
        "loaders": {"a": {"workers": 2, "pin": True}}, "threads": 2, "precision": "bf16"}
    assert kept == {"loaders": {"a": {"workers": 2}}, "threads": 2}


SCRIPT = """
import random, numpy, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(7)
x = torch.randn(4000, 16)
y = OFFSET + x[:, :4].sum(1, keepdim=True).tanh()
model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 1))
model[4].bias.data.fill_(OFFSET)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
while True:
    for a, b in loader:
        a = a + 0.01 * random.random() + 0.01 * numpy.random.rand()
        optimizer.zero_grad()
        nn.functional.mse_loss(model(a), b).backward()
        optimizer.step()
"""


def command(folder: Path, offset: float) -> trial.Command:
    (folder / "train.py").write_text(SCRIPT.replace("OFFSET", str(offset)))
    (folder / "rooms").mkdir(exist_ok=True)
    return trial.read([sys.executable, "train.py"], folder, dict(os.environ))


def told(folder: Path, order: dict, name: str) -> list[dict]:
    """What one process of a guard tells."""
    started = trial.Trial(command(folder, 0.0), {"mode": "guard", "settings": {}, "try": [], **order}, folder / "rooms")
    try:
        assert started.start().wait(60).how == "facts"
        return [json.loads(line) for line in (started.room / name).read_text().splitlines()]
    finally:
        started.end()


@pytest.mark.slow
def test_a_seed_is_one_training_and_another_seed_is_another(tmp_path: Path) -> None:
    first, again, other = (told(tmp_path, {"seed": seed, "steps": 40}, guard.LOSSES) for seed in (1, 1, 2))
    assert first == again
    assert [line["step"] for line in first] == list(range(1, 41))
    assert first[-1]["samples"] == 40 * 32
    assert all(a["loss"] != b["loss"] for a, b in zip(first, other, strict=True))


@pytest.mark.slow
def test_the_same_batch_gives_the_same_and_bf16_nearly_the_same(tmp_path: Path) -> None:
    lines = told(tmp_path, {"seed": 0, "try": ["bf16"]}, guard.COSINES)
    assert guard.gradients(lines, "bf16")[0] == guard.SAFE
    for line in lines:
        assert line["null"] == pytest.approx(1, abs=1e-9)  # weights, buffers, dropout and the script's own draws were as before
        assert line["cosine"] < 1 - 1e-9  # and with the knob something was different


@pytest.mark.slow
def test_what_bf16_cannot_tell_apart_is_refused(tmp_path: Path) -> None:
    verdict = guard.check(command(tmp_path, 1000.0), {}, {"precision": "bf16"}, "bf16", parent=tmp_path / "rooms", ms=1, ratio=0.7)
    assert verdict.state == guard.HARMFUL
    assert "gradients" in verdict.sentence
    assert list((tmp_path / "rooms").iterdir()) == []
