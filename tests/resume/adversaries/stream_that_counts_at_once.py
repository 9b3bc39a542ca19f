# Tries: an iterable data set whose __iter__ is no generator: it counts its epochs, and notes the time, before the first batch is asked for
# expected: exact
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

torch.manual_seed(0)


class Stream(IterableDataset):
    def __init__(self, x, y):
        self.rows = list(zip(x, y, strict=True))
        self.epoch = 0
        self.name = "first"

    def __iter__(self):
        self.epoch += 1
        self.begun = time.time()
        self.name = f"epoch {self.epoch}"
        rows = list(self.rows)
        random.Random(self.epoch).shuffle(rows)
        return iter(rows)


x = torch.randn(640, 8)
stream = Stream(x, x.sum(1, keepdim=True))
loader = DataLoader(stream, batch_size=16)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
n = 0
for _ in range(40):
    for a, b in loader:
        loss = (m(a) - b).pow(2).mean() * (1 + 0.01 * stream.epoch)
        o.zero_grad()
        loss.backward()
        o.step()
        n += 1
        if n % 20 == 0:
            print(stream.name, n, loss.item(), flush=True)
assert 0 < time.time() - stream.begun < 1000
del stream.begun  # another in each run
print("final", sum(p.double().sum().item() for p in m.parameters()), stream.epoch, n)
