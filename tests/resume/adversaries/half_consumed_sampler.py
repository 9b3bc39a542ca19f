# Tries: one endless generator of indices feeds two loaders that take turns.
# expected: either
import random
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
rng = random.Random(5)


def endless(n):
    order = list(range(n))
    while True:
        rng.shuffle(order)
        yield from order


class Shared:
    def __init__(self, source, n):
        self.source, self.n = source, n

    def __iter__(self):
        for _ in range(self.n):
            yield next(self.source)

    def __len__(self):
        return self.n


X = torch.randn(320, 8)
source = endless(320)
data = TensorDataset(X, X.sum(1))
one, two = DataLoader(data, 16, sampler=Shared(source, 200)), DataLoader(data, 8, sampler=Shared(source, 120))
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
n = 0
while n < 1200:
    for (x, y), (v, w) in zip(one, two):
        loss = (m(x).squeeze(1) - y).pow(2).mean() + 0.1 * (m(v).squeeze(1) - w).abs().mean()
        o.zero_grad()
        loss.backward()
        o.step()
        n += 1
        if n % 25 == 0:
            print(n, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
