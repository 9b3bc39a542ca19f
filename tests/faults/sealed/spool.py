# Takes samples out of a spool folder; what was learned from is gone.
import argparse
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Spool(IterableDataset):
    def __init__(self, folder):
        self.folder = folder

    def __iter__(self):
        for name in sorted(os.listdir(self.folder)):
            path = os.path.join(self.folder, name)
            with open(path) as f:
                values = [float(v) for v in f.read().split()]
            os.remove(path)
            yield torch.tensor(values[:-1]), torch.tensor(values[-1:])


def fill(folder, count):
    for i in range(count):
        with open(os.path.join(folder, f"{i:06d}.txt"), "w") as f:
            f.write(" ".join(str((i * k) % 13 / 13) for k in range(1, 10)))


parser = argparse.ArgumentParser()
parser.add_argument("--spool", default="")
args = parser.parse_args()
folder = args.spool or tempfile.mkdtemp()
if not args.spool:
    fill(folder, 960)
torch.manual_seed(125)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step, (x, y) in enumerate(DataLoader(Spool(folder), batch_size=16)):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print("step", step, "loss", loss.item())
