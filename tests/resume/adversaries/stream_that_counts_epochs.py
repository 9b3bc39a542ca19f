# Tries: an iterable data set that counts its epochs and samples itself, in a generator, and shuffles by that count
# expected: exact
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

torch.manual_seed(0)


class Stream(IterableDataset):
    def __init__(self, x, y):
        self.x, self.y = x, y
        self.epoch = -1
        self.given = 0

    def __iter__(self):
        self.epoch += 1
        self.turn = 0
        order = torch.randperm(len(self.x), generator=torch.Generator().manual_seed(self.epoch))
        for i in order.tolist():
            self.given += 1
            self.turn += 1
            scale = 1 + 0.01 * (self.given % 7)
            yield self.x[i] * scale, self.y[i]


x = torch.randn(640, 8)
stream = Stream(x, x.sum(1, keepdim=True))
loader = DataLoader(stream, batch_size=16)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
n = 0
while stream.epoch < 40:
    for a, b in loader:
        loss = (m(a) - b).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        n += 1
        if stream.turn % 320 == 0:
            print(stream.epoch, n, stream.given, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), stream.epoch, stream.given, n)
