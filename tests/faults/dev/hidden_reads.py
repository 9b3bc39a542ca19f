"""Slow reads, but enough workers to hide them behind the accelerator."""
import os
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import accelerator


class Scans(Dataset):
    def __init__(self, n=4000):
        self.values = torch.randn(n, 128, generator=torch.Generator().manual_seed(9))

    def __len__(self):
        return len(self.values)

    def __getitem__(self, i):
        time.sleep(0.001)
        return self.values[i], i % 4


def main():
    accelerator.configure(fixed_ms=5, sample_ms=2.5)
    torch.manual_seed(9)
    model = accelerator.prepare(nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(Scans(), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True, prefetch_factor=4)
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(accelerator.put(x)), accelerator.put(y))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("epoch", epoch, "loss", loss.item())


if __name__ == "__main__":
    main()
