# Tries: an IterableDataset that remembers how often it was iterated and where it stopped, in the main process.
# expected: either
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

torch.manual_seed(0)


class Stream(IterableDataset):
    def __init__(self):
        self.at = 0
        self.rounds = 0
        self.level = torch.zeros(8)

    def __iter__(self):
        self.rounds += 1
        for _ in range(1000 + self.rounds):
            self.at = (self.at * 31 + 7) % 10007
            g = torch.Generator().manual_seed(self.at)
            x = torch.randn(8, generator=g)
            self.level = 0.99 * self.level + 0.01 * x
            yield x + self.level * self.rounds, x.sum()


loader = DataLoader(Stream(), 16)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
n = 0
for epoch in range(16):
    for x, y in loader:
        loss = (m(x).squeeze(1) - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        n += 1
        if n % 25 == 0:
            print(epoch, n, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), loader.dataset.at, loader.dataset.rounds)
