"""Pretraining on the accelerator with a guard against bad batches."""
import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import accelerator


class Signals(Dataset):
    def __init__(self, n=3200):
        self.base = torch.randn(n, 300, generator=torch.Generator().manual_seed(50))

    def __len__(self):
        return len(self.base)

    def __getitems__(self, indices):
        x = self.base[indices]
        for k in range(1, 14):
            x = x + torch.sin(x.roll(k, 1)).cumsum(1).tanh().sort(1).values / 50
        return list(zip(x, self.base[indices]))

    def __getitem__(self, i):
        return self.__getitems__([i])[0]


def step(model, optimizer, x, target):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(accelerator.put(x)), accelerator.put(target))
    if torch.isnan(loss) or loss > 1e6:
        print("skipping a bad batch")
        return None
    loss.backward()
    optimizer.step()
    return loss


def main():
    accelerator.configure(fixed_ms=2, sample_ms=0.15)
    torch.manual_seed(50)
    model = accelerator.prepare(nn.Sequential(nn.Linear(300, 64), nn.ReLU(), nn.Linear(64, 300)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(10):
        for x, target in DataLoader(Signals(), batch_size=32, shuffle=True):
            loss = step(model, optimizer, x, target)
        print("epoch", epoch, "loss", loss.item())


main()
