"""Which batch size is tried next, and what the points mean; and scripts that run out of memory, are killed, or know no other size."""

import math
import os
import random
import sys
from pathlib import Path

import pytest

from stoker.tune import batch, trial
from stoker.tune.batch import Ladder, Point

GB = 1 << 30


def climb(time, memory, *, own: int = 32, cap: int = 8 * GB, samples: int | None = None, noise: float = 0.0) -> Ladder:
    """Run the ladder over a script whose step takes time(B) ms and memory(B) bytes."""
    ladder, draw = Ladder(cap, samples), random.Random(3)
    while (size := ladder.next()) is not None:
        size = size or own
        if memory(size) > cap:
            ladder.points.append(Point(size, why="out of memory", memory=True))
        else:
            ladder.points.append(Point(size, time(size) * (1 + draw.uniform(-noise, noise)), int(memory(size))))
    return ladder


def best_rate(time, memory, *, cap: int = 8 * GB, samples: int | None = None) -> float:
    most = 1 << 16 if samples is None else samples // batch.LEAST_STEPS
    return max(b * 1000 / time(b) for b in range(1, most) if memory(b) <= batch.USE * cap)


def little(size: float) -> float:
    return GB / 4 + 1000 * size


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize(("fixed", "each"), [(100, 0.1), (20, 0.05), (5, 0.5), (1, 1.0), (0.2, 0.01)])
def test_the_rate_is_within_five_per_cent_of_brute_force(fixed: float, each: float, noise: float) -> None:
    def time(size: float) -> float:
        return fixed + each * size
    ladder = climb(time, little, noise=noise)
    assert len(ladder.points) <= batch.MOST
    chosen = ladder.chosen().size
    assert chosen * 1000 / time(chosen) >= (0.94 if noise else 0.95) * best_rate(time, little)


def test_a_step_that_is_all_work_is_left_at_its_size() -> None:
    ladder = climb(lambda size: 1.0 * size, little)
    assert ladder.chosen().size == 32
    assert len(ladder.points) <= 3


def test_caches_that_overflow_make_larger_sizes_slower() -> None:
    def time(size: float) -> float:
        return 10 + 0.1 * size + (0.2 * (size - 300) if size > 300 else 0)
    ladder = climb(time, little)
    chosen = ladder.chosen().size
    assert chosen * 1000 / time(chosen) >= 0.9 * best_rate(time, little)


def test_memory_ends_it_and_the_largest_that_fits_is_found() -> None:
    def memory(size: float) -> float:
        return 2 * GB + 40e6 * size
    ladder = climb(lambda size: 1000 + 0.5 * size, memory, own=8)
    out = batch.answer(ladder, {"own": 8})
    most = (batch.USE * 8 * GB - 2 * GB) / 40e6
    assert out.bound_by_memory
    assert out.seen
    assert 0.95 * most <= out.largest <= most
    assert all(p.ok for p in ladder.points)
    assert len(ladder.points) <= batch.MOST


def test_a_jump_of_memory_is_a_fact_and_the_way_goes_back() -> None:
    def memory(size: float) -> float:
        return GB + (100 * GB if size > 200 else 0)
    ladder = climb(lambda size: 100 + 0.1 * size, memory)
    assert any(p.memory for p in ladder.points)
    assert 64 < ladder.good[-1].size <= 200
    assert len(ladder.points) <= batch.MOST


def test_a_batch_that_does_not_fit_itself_is_made_smaller() -> None:
    ladder = climb(lambda size: 1.0 * size, lambda size: 0.2 * GB * size, own=64)
    assert ladder.good
    assert ladder.good[-1].size < 64
    assert "does not run here" in batch.lines(batch.answer(ladder, {"own": 64}))[0]


def test_an_epoch_keeps_some_steps() -> None:
    ladder = climb(lambda size: 100 + 0.01 * size, little, samples=4000)
    assert max(p.size for p in ladder.points) <= 4000 // batch.LEAST_STEPS


@pytest.mark.parametrize(("optimizer", "times", "rate"), [("SGD", 2, 0.2), ("SGD", 16, 0.4), ("AdamW", 4, 0.2), ("Adam", 2, 0.1 * math.sqrt(2))])
def test_the_rule_for_the_learning_rate(optimizer: str, times: float, rate: float) -> None:
    text = batch.rule(optimizer, 0.9, 0.1, times)
    assert f"0.1 -> {rate:.3g}" in text
    assert ("for a batch more than" in text) == (times > batch.LR_MOST)
    assert ("warm-up" in text) == (optimizer == "SGD")


def test_an_unknown_optimizer_has_no_rule() -> None:
    assert "no rule" in batch.rule("Shampoo", 0, 0.1, 2)
    assert batch.rule("SGD", 0, 0.1, 1) == ""


SCRIPT = """
import os, time, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 1)
    def forward(self, x):
        if len(x) > 40:
            FATE
        time.sleep(0.01)
        return self.last(x)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = TensorDataset(torch.randn(20000, 4), torch.randn(20000, 1))
for epoch in range(1000):
    for x, y in DataLoader(data, batch_size=8, shuffle=True):
        optimizer.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        optimizer.step()
"""


def tried(tmp_path: Path, code: str, **options: object) -> batch.Answer:
    """What comes of a script; nothing of it is left."""
    (tmp_path / "train.py").write_text(code)
    rooms = tmp_path / "rooms"
    rooms.mkdir()
    command = trial.read([sys.executable, "train.py"], tmp_path, dict(os.environ))
    out = batch.largest(command, parent=rooms, **options)
    assert list(rooms.iterdir()) == []
    return out


@pytest.mark.slow
def test_out_of_memory_is_a_fact_and_the_cap_holds(tmp_path: Path) -> None:
    greedy = SCRIPT.replace("FATE", "self.kept = [torch.ones(1 << 24) for _ in range(100)]  # 6.4 GB")
    out = tried(tmp_path, greedy, cap_bytes=GB, most=3)
    assert [(p.size, p.ok) for p in out.points] == [(8, True), (16, True), (64, False)]
    assert out.points[-1].why == "out of memory"
    assert out.chosen.size == 16
    assert 0 < out.chosen.peak < GB
    assert (out.optimizer, out.lr, out.samples) == ("AdamW", 1e-3, 20000)


@pytest.mark.slow
def test_what_the_size_before_held_counts_for_no_size(tmp_path: Path) -> None:
    """2 MB a sample in a buffer that is only given back when the next one is there: 1 GB is for some 300 samples, 512 are too many."""
    holds = SCRIPT.replace("if len(x) > 40:", "if len(x) << 19 > getattr(self, 'room', torch.empty(0)).numel():")
    out = tried(tmp_path, holds.replace("FATE", "self.room = torch.zeros(len(x) << 19)"), cap_bytes=GB)
    sizes = {p.size: p.peak for p in out.points if p.ok}
    assert out.points[-1].ok and out.chosen.size == max(sizes) > 256 and out.chosen.peak < 1.05 * batch.USE * GB, out.points
    low, high = sorted(sizes)[-2:]
    assert (sizes[high] - sizes[low]) / (high - low) == pytest.approx(2 << 20, rel=0.1)


@pytest.mark.slow
def test_a_killed_probe_harms_nobody_and_the_next_begins_anew(tmp_path: Path) -> None:
    out = tried(tmp_path, SCRIPT.replace("FATE", "os.kill(os.getpid(), 9)"), most=4)
    assert [(p.size, p.ok) for p in out.points] == [(8, True), (16, True), (64, False), (32, True)]
    assert "SIGKILL" in out.points[2].why
    assert out.chosen.size == 32


@pytest.mark.slow
def test_a_script_without_a_loader_is_refused_with_the_reason(tmp_path: Path) -> None:
    code = SCRIPT[:SCRIPT.index("data = ")].replace("FATE", "pass") + """
while True:
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
"""
    out = tried(tmp_path, code)
    assert out.refused == batch.NO_LOADER
    assert batch.NO_LOADER in batch.lines(out)[0]
