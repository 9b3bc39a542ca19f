"""A script whose training runs in processes that it starts says so while it runs, and one that only prepares its data there does not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "resume"))

from harness import Stage, read, vendored

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SCRIPT = """
import torch
import torch.multiprocessing as mp


def prepare(rank):
    torch.save(torch.ones(4), f"part{{rank}}.pt")


def train(rank):
    weights = torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.SGD([weights], 0.1)
    for _ in range(3):
        (weights - 1).pow(2).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    {start}
"""
STARTS = {
    "spawn": ("mp.spawn(train, nprocs=1)", "not resumable"),
    "fork": ("p = mp.get_context('fork').Process(target=train, args=(0,)); p.start(); p.join()", "not resumable"),
    "prepares": ("mp.spawn(prepare, nprocs=1); train(0)", "recording"),
}


@pytest.mark.parametrize("how", STARTS)
def test_a_training_in_processes_of_the_script(how, short_tmp):
    start, state = STARTS[how]
    path = short_tmp / "spawns.py"
    path.write_text(SCRIPT.format(start=start))
    stage = Stage(read(path), short_tmp / "run", hooks=vendored(short_tmp / "hooks"))
    stage.fresh()
    life = stage.live(1)
    assert life.rc == 0, life.err.decode()
    assert life.said["state"] == state
    assert ("in processes that it starts" in life.said.get("reason", "")) == (state == "not resumable")
