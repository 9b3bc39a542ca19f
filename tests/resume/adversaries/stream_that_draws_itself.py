# Tries: endless iterable data set with generators of its own, which go on from epoch to epoch, and counts what it gave
# expected: exact
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

torch.manual_seed(0)


class Waves(IterableDataset):
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.noise = torch.Generator().manual_seed(seed)
        self.given = 0

    def __iter__(self):
        while True:
            self.given += 1
            phase = self.rng.uniform(0, 6.28)
            x = torch.linspace(0, 3, 8) + phase
            yield x.sin() + 0.1 * torch.randn(8, generator=self.noise), torch.tensor([np.cos(phase)], dtype=torch.float32)


m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
waves = Waves(5)
loader = DataLoader(waves, batch_size=16)
n = 0
for epoch in range(4):
    for x, y in loader:
        loss = (m(x) - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        n += 1
        if n % 25 == 0:
            print(epoch, n, waves.given, loss.item(), flush=True)
        if n % 400 == 0:
            break
print("final", sum(p.double().sum().item() for p in m.parameters()), waves.given, waves.rng.random(), n)
