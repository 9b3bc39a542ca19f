"""What schedules, averaged weights and checkpoints of plain loops promise, each as a function; run in one process that has torch."""

from __future__ import annotations

import contextlib
import io
import math
import random
import sys
import traceback
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn

import stoker
from stoker.engine.errors import InvalidSpec, StateError


def optimizer(rate: float = 1.0) -> torch.optim.Optimizer:
    return torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=rate)


def rates(schedule, steps: int) -> list[float]:
    found = []
    for _ in range(steps):
        found.append(schedule.get_last_lr()[0])
        schedule.step()
    return found


def cosine_after_a_warm_up():
    found = rates(stoker.sched.cosine(optimizer(2.0), 12, warmup=4, floor=0.1), 14)
    assert found[:4] == [0.5, 1.0, 1.5, 2.0]
    assert found[4] == 2.0
    assert found[8] == pytest.approx(2.0 * (0.1 + 0.9 * 0.5))
    assert found[12:] == pytest.approx([0.2, 0.2])
    assert found == pytest.approx([*found[:4], *(2.0 * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1, n / 8)))) for n in range(10))])


def linear_and_steps():
    assert rates(stoker.sched.linear(optimizer(), "4step"), 6) == pytest.approx([1, 0.75, 0.5, 0.25, 0, 0])
    assert rates(stoker.sched.step(optimizer(), "2step", 0.5, warmup=2), 6) == pytest.approx([0.5, 1, 1, 1, 0.5, 0.5])


def lengths_are_converted_to_steps():
    for warmup, steps in (("2step", 2), ("0.5ep", 2), ("30sample", 3), ("31sample", 4)):
        schedule = stoker.sched.linear(optimizer(), "2ep", warmup=warmup)
        with pytest.raises(InvalidSpec, match="does not know the length of an epoch"):
            schedule.step()
        schedule.bind(torch.utils.data.DataLoader(range(23), batch_size=5), window=2)  # 5 batches: 3 steps an epoch of 10 samples at most
        assert schedule.get_last_lr() == [pytest.approx(1 / steps)]


def other_lengths_are_refused():
    for length in ("12", "3 ep och", -1, True, None, "5min"):
        with pytest.raises(InvalidSpec, match="a length such as"):
            stoker.sched.cosine(optimizer(), length)


def a_longer_run_gets_a_longer_curve():
    short = stoker.sched.linear(optimizer(), 10)
    rates(short, 5)
    longer = stoker.sched.linear(optimizer(), 20)
    longer.load_state_dict(short.state_dict())
    assert longer.get_last_lr() == [0.75]


def averages_follow_and_are_put_in_for_an_evaluation():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    ema = stoker.EMA(model, decay=0.5)
    weights = []
    for n in range(5):
        with torch.no_grad():
            model[0].weight.fill_(float(n))
            model[1].num_batches_tracked.fill_(n)
        weights.append(float(n))
        ema.update()
    wanted = weights[0]
    for n, now in enumerate(weights[1:], 2):
        decay = min(0.5, (1 + n) / (10 + n))
        wanted = decay * wanted + (1 - decay) * now
    with pytest.raises(KeyError), ema.applied():
        assert model[0].weight.tolist() == [[pytest.approx(wanted)] * 2] * 2
        assert model[1].num_batches_tracked == 4
        raise KeyError
    assert model[0].weight.tolist() == [[4.0, 4.0]] * 2
    twin = stoker.EMA(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    twin.load_state_dict(ema.state_dict())
    with twin.applied():
        assert twin.model[0].weight[0, 0].item() == pytest.approx(wanted)
    with pytest.raises(InvalidSpec, match=r"belong to a different model: 0\.weight"):
        stoker.EMA(nn.Sequential(nn.Linear(3, 2))).load_state_dict(ema.state_dict())


def parts():
    model = nn.Linear(3, 2)
    moving = torch.optim.Adam(model.parameters(), lr=0.1)
    return model, moving, torch.optim.lr_scheduler.StepLR(moving, 2), {"best": 0.5, "curve": [1, 2]}


def trained():
    model, moving, schedule, extra = parts()
    model(torch.ones(1, 3)).sum().backward()
    moving.step()
    schedule.step()
    return model, moving, schedule, extra


def a_checkpoint_of_a_plain_loop_comes_back(tmp_path):
    model, moving, schedule, extra = trained()
    assert stoker.load_checkpoint(tmp_path / "c", 1, model, moving, schedule=schedule, extra=extra) == 1
    for epoch in (1, 2, 3, 4):
        stoker.save_checkpoint(tmp_path / "c", epoch, model, [moving], schedule=schedule, extra=extra)
    drawn = torch.rand(1), random.random(), numpy.random.rand()
    other, moved, follows, held = parts()
    assert stoker.load_checkpoint(tmp_path / "c", 1, [other], moved, schedule=follows, extra=held) == 5
    assert (torch.rand(1), random.random(), numpy.random.rand()) == drawn
    assert other.weight.equal(model.weight)
    assert moved.state[other.weight]["exp_avg"].equal(moving.state[model.weight]["exp_avg"])
    assert follows.last_epoch == 1
    assert held == extra
    assert len([p for p in (tmp_path / "c").iterdir() if p.name.startswith("step-")]) == 2


def a_damaged_checkpoint_leaves_the_one_before(tmp_path):
    model, moving, *_ = trained()
    for epoch in (1, 2):
        stoker.save_checkpoint(tmp_path, epoch, model, moving)
    newest = sorted(tmp_path.glob("step-*"))[-1] / "tensors.safetensors"
    newest.write_bytes(newest.read_bytes()[:-3])
    heard = io.StringIO()
    with contextlib.redirect_stderr(heard):
        assert stoker.load_checkpoint(tmp_path, 0, model, moving) == 2
    assert "skipped: tensors.safetensors has a different size" in heard.getvalue()
    assert (tmp_path / "latest").read_text() == "step-000000001\n"  # what names the newest one follows


def nothing_is_changed_when_something_does_not_fit(tmp_path):
    model, moving, *_ = trained()
    stoker.save_checkpoint(tmp_path, 1, model, moving)
    other, moved, *_ = parts()
    before = other.weight.clone()
    wrong = torch.optim.SGD([other.weight], lr=0.1)
    with pytest.raises(StateError, match="optimizer1"):
        stoker.load_checkpoint(tmp_path, 0, other, wrong)
    assert other.weight.equal(before)
    with pytest.raises(StateError, match=r"only the arguments have more\.schedule"):
        stoker.load_checkpoint(tmp_path, 0, other, moved, schedule=torch.optim.lr_scheduler.StepLR(moved, 2))
    assert other.weight.equal(before)
    assert not moved.state


def what_could_not_be_put_back_is_refused(tmp_path):
    model, moving, *_ = parts()
    for words, message in (({"best": 0.5}, "best is a float"), ({"f": parts}, "f is a function")):
        with pytest.raises(InvalidSpec, match=message):
            stoker.save_checkpoint(tmp_path / "c", 1, model, moving, **words)
    assert not (tmp_path / "c").exists()
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="is a file; checkpoints go into a folder"):
        stoker.load_checkpoint(tmp_path / "file", 1, model, moving)


CHECKS = [cosine_after_a_warm_up, linear_and_steps, lengths_are_converted_to_steps, other_lengths_are_refused, a_longer_run_gets_a_longer_curve,
          averages_follow_and_are_put_in_for_an_evaluation]
ON_DISK = [a_checkpoint_of_a_plain_loop_comes_back, a_damaged_checkpoint_leaves_the_one_before, nothing_is_changed_when_something_does_not_fit,
           what_could_not_be_put_back_is_refused]


def main() -> int:
    """The number of checks that failed; each failure is printed."""
    failed = 0
    for check in [*CHECKS, *ON_DISK]:
        folder = Path(check.__name__)
        folder.mkdir()
        try:
            check(folder) if check in ON_DISK else check()
        except Exception:
            failed += 1
            print("FAILED", check.__name__)
            traceback.print_exc()
    return failed


sys.exit(main())
