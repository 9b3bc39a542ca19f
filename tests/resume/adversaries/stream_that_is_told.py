# Tries: the script changes a plain attribute of an iterable data set while it reads it, which the next samples go by
# expected: refused
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

torch.manual_seed(0)


class Stream(IterableDataset):
    def __init__(self, x, y):
        self.x, self.y = x, y
        self.epoch = 0
        self.level = 0.0

    def __iter__(self):
        self.epoch += 1
        for a, b in zip(self.x, self.y, strict=True):
            yield a + self.level, b


x = torch.randn(6400, 8)
stream = Stream(x, x.sum(1, keepdim=True))
loader = DataLoader(stream, batch_size=16)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
n = 0
for _ in range(4):
    for a, b in loader:
        loss = (m(a) - b).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        n += 1
        stream.level = 0.001 * (n % 90)
        if n % 20 == 0:
            print(stream.epoch, n, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), stream.epoch, n)
