"""A training that is small, ends the same each time and writes files, as people write it: for tests that kill it and compare the ends."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from parts import missing

PAUSE = "time.sleep(0.004)"  # after each of its 40 steps an epoch
TRAIN = """
import sys, time, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(1)
data = TensorDataset(torch.randn(640, 10), torch.randint(0, 3, (640,)))
loader = DataLoader(data, batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
best, log = 1e9, open("log.csv", "w")
for epoch in range(int(sys.argv[1])):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
        time.sleep(0.004)
    print(f"epoch {epoch} loss {total:.6f}", flush=True)
    log.write(f"{epoch},{total}\\n"); log.flush()
    if total < best:
        best = total
        torch.save(model.state_dict(), "best.pt")
torch.save(model.state_dict(), "last.pt")
"""


def made(folder: Path) -> dict[str, str]:
    """What it wrote: name -> hash."""
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("log.csv", "best.pt", "last.pt")}


def python_with_torch() -> str:
    """The Python to run it by; where that has no torch, the test says so."""
    try:
        import torch  # noqa: F401
    except ImportError:
        missing("torch")
    return sys.executable
