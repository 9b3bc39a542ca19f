# Tries: a bucket sampler that shuffles its own list in place at every __iter__, so epoch k depends on all before.
# short: yes
# expected: either
import random
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
random.seed(0)


class Buckets:
    def __init__(self, n, size):
        self.buckets = [list(range(i, i + size)) for i in range(0, n, size)]

    def __len__(self):
        return len(self.buckets)

    def __iter__(self):
        random.shuffle(self.buckets)
        yield from self.buckets


X = torch.randn(1600, 8)
loader = DataLoader(TensorDataset(X, X.sum(1)), batch_sampler=Buckets(1600, 16))
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
i = 0
for epoch in range(12):
    for x, y in loader:
        loss = (m(x).squeeze(1) - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        if i % 25 == 0:
            print(i, loss.item(), flush=True)
        i += 1
print("final", (m(X).squeeze(1) - X.sum(1)).pow(2).mean().item())
