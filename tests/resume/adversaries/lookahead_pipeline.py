# Tries: batches in flight: a deque of prepared inputs and a generator one batch ahead.
# short: yes
# expected: exact
import collections
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
X = torch.randn(320, 8)
loader = DataLoader(TensorDataset(X, X.sum(1)), 16, shuffle=True)


def forever():
    while True:
        yield from loader


def ahead(source):
    held = next(source)
    for nxt in source:
        yield held
        held = nxt


def prepared(source, depth=3):
    line = collections.deque()
    for x, y in source:
        line.append((x + 0.1 * torch.randn_like(x), y))
        if len(line) > depth:
            yield line.popleft()


m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i, (x, y) in enumerate(prepared(ahead(forever()))):
    loss = (m(x).squeeze(1) - y).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
    if i == 1200:
        break
print("final", sum(p.double().sum().item() for p in m.parameters()))
