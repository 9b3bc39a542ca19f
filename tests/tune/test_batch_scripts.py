"""`stoker tune --batch` in scripts that make their data in ways of their own: it comes to an end, and names a batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

TRAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
class Numbered(Dataset):
    def __init__(self, n):
        self.x = torch.randn(n, 16)
    def __len__(self):
        return len(self.x)
    def __getitem__(self, i):
        return self.x[i]
class Stream(IterableDataset):
    def __init__(self, n):
        self.n = n
    def __iter__(self):
        for _ in range(self.n):
            yield torch.randn(16)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.5)
sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)
for epoch in range(100000):
    for x in DataLoader(DATA, batch_size=16):
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        for x in DataLoader(Numbered(128), batch_size=16):
            net(x)
    sched.step()
"""


@pytest.mark.parametrize("data", ["Numbered(2000)", "Stream(2000)"])
def test_data_made_anew_for_each_epoch(tmp_path, data):
    (tmp_path / "train.py").write_text(TRAIN.replace("DATA", data))
    with tempfile.TemporaryDirectory(prefix="sb-", dir="/tmp") as home:
        env = {k: v for k, v in os.environ.items() if not k.startswith("STOKER_")} | {"STOKER_HOME": str(Path(home, "h"))}
        env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])  # the Python with torch in it
        stoker = [sys.executable, "-m", "stoker.cli"]
        done = subprocess.run([*stoker, "tune", "--batch", "--force", "--json", "train.py"], cwd=tmp_path, env=env, capture_output=True, text=True,
                              timeout=150, check=False)
        subprocess.run([*stoker, "server", "stop"], env=env, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [p["size"] for p in told["probes"]][:2] == [16, 32] and 16 <= told["chosen"] <= 2000
    assert told["lr"] == 0.5 and not any("did not end" in (p["failed"] or "") for p in told["probes"])
