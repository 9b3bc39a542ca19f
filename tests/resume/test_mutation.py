"""The checks are checked: a resume that leaves one part of the state out must be noticed, whatever the part."""

from __future__ import annotations

import shutil

import pytest
from harness import Kill, Stage, campaign, one_text, read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# Everything that can be dropped matters to this script, soon: dropout, BatchNorm, momentum, worker noise, place in the data, a count that forward keeps.
SCRIPT = """# A script to whom every part of its state matters within a few steps.
import random
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
random.seed(0)


class Data(Dataset):
    def __init__(self):
        self.x = torch.randn(4000, 8)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] + 0.1 * torch.randn(8) * random.random(), self.x[i].sum()


class Net(nn.Sequential):
    def forward(self, x):
        calls = self.deep["a"]["b"]["c"]  # deeper than what a ghost is handed
        calls[0] += 1
        return super().forward(x) * (1 + 0.01 * (calls[0] % 7))


m = Net(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))
m.deep = {"a": {"b": {"c": [0]}}}
o = torch.optim.Adam(m.parameters(), 1e-2)
loader = DataLoader(Data(), 16, shuffle=True, num_workers=2)
smooth, n = 0.0, 0
for epoch in range(4):
    for x, y in loader:
        loss = (m(x + 0.01 * torch.randn(8)).squeeze(1) - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        smooth = 0.9 * smooth + 0.1 * loss.item()
        o.param_groups[0]["lr"] = 1e-2 / (1 + smooth)
        n += 1
        if n % 10 == 0:
            m.eval()
            with torch.no_grad():
                print(n, loss.item(), smooth, m(x).sum().item(), flush=True)
            m.train()
"""
EVERY = "400steps"  # the kill waits for four prints after the image: no newer image comes between, or nothing would tell
PARTS = ("rng", "optimizer", "buffers", "position", "worker_rng", "value")


@pytest.fixture(scope="module")
def grave(hooks, tmp_path_factory):
    """A run that was killed a little after an image, to be resumed in many ways; and how it would have ended."""
    base = tmp_path_factory.mktemp("grave")
    (base / "mutant.py").write_text(SCRIPT)
    stage = Stage(read(base / "mutant.py"), base / "run", hooks=hooks, every=EVERY)
    straight = stage.plain()
    stage.fresh()
    life = stage.live(1, Kill("image", 0.2, 1))
    assert life.killed, life.err.decode()[-1000:]
    assert life.said.get("image"), life.said
    shutil.copytree(stage.base, base / "kept", ignore=shutil.ignore_patterns("pymp-*"))  # sockets of the dead
    return base, stage, straight, life


def resume(grave, drop: str, **env: str):
    """The second life with one part of the state left out: (its Final, its Life)."""
    base, stage, _, first = grave
    shutil.rmtree(stage.base)
    shutil.copytree(base / "kept", stage.base)
    again = Stage(stage.script, stage.base, hooks=stage.hooks, every=EVERY, drop=drop, env=env)
    life = again.live(2)
    return again.final(life, one_text([first, life])[0]), life


def test_with_nothing_left_out_it_is_exact(grave):
    final, life = resume(grave, "")
    assert life.resumed and not life.said.get("tried"), life.said
    assert not grave[2].differs(final, grave[1].script)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_left_out_is_noticed(grave, part):
    """Noticed: the newest image was refused with a reason. What it did next may drop the part again: it must end right, from the start at the latest."""
    final, life = resume(grave, part)
    assert life.said.get("tried"), f"{part} was left out and nobody saw it: {life.said.get('resumed')}"
    assert life.rc == 0, life.err.decode()[-800:]
    differs = grave[2].differs(final, grave[1].script)
    assert not differs, differs


def test_a_script_that_differs_from_itself_is_no_trial(hooks, short_tmp):
    """The harness itself: what differs is nobody's fault but the script's where two plain runs differ too."""
    (short_tmp / "odd.py").write_text("import os\nprint(os.urandom(8).hex())\n")
    with pytest.raises(AssertionError, match="odd differs from itself without Stoker"):
        campaign(read(short_tmp / "odd.py"), short_tmp / "run", kills=1, plans=[[Kill("image", 0.1, 1)]], hooks=hooks, every="60steps")
