# Tries: a forward makes an object of a class of the script's own, and keeps tensors and counts in it from call to call
# short: yes
# expected: exact
from collections import defaultdict

import torch
from torch import nn

torch.manual_seed(0)


class Memory:
    def __init__(self, width):
        self.keys = torch.zeros(4, width)
        self.at = 0
        self.seen, self.counts, self.by_number = [], defaultdict(int), defaultdict(list)

    def add(self, row):
        self.keys[self.at % 4] = row
        self.at += 1
        self.counts[f"n{self.at // 40}"] += 1
        self.by_number[self.at // 90].append(self.at)
        self.seen = [*self.seen[-3:], self.at]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.memory = None

    def forward(self, x):
        h = self.a(x).relu()
        if self.memory is None:
            self.memory = Memory(h.shape[1])
        self.memory.add(h.detach().mean(0))
        h = h + 0.1 * self.memory.keys.mean(0)
        return self.b(h).squeeze(1)


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), m.memory.at, len(m.memory.counts), len(m.memory.by_number))
