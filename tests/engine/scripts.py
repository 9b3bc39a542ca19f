"""Small scripts for the rules of resuming: each is a head that sets up, and a body."""

from __future__ import annotations

from pathlib import Path

HEAD = """
import os, sys, torch, signal
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
import stoker

def die():
    engine._core.keeper.wait()
    os.kill(os.getpid(), signal.SIGKILL)

def weights(model):
    import hashlib
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16]

DIE = os.environ.get("DIE", "")
x = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
data = TensorDataset(x, (x[:, 0] > 0).long())
"""

USUAL = """
engine = stoker.Engine({arguments})
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
train = DataLoader(data, batch_size=8, shuffle=True)
model, opt, train = engine.setup(model, opt, train)
for epoch in engine.epochs({epochs}):
    for a, b in engine.batches(train):
        engine.step(F.cross_entropy(model(a), b))
        if DIE == str(engine.steps):
            die()
{tail}
print("END", engine.steps, weights(model))
"""


def script(folder: Path, text: str, name: str = "train.py") -> Path:
    """The script on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(HEAD + text)
    return path


def usual(arguments: str = 'folder="run", save="1step"', epochs: int = 3, tail: str = "") -> str:
    """A plain training of five steps an epoch."""
    return USUAL.format(arguments=arguments, epochs=epochs, tail=tail)
