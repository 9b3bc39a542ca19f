# Tries: state in the locals of generators inside generators, suspended with tensors, `yield from` and send().
# short: yes
# expected: exact
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)


def noise(scale):
    carry = torch.zeros(8)
    while True:
        carry = 0.9 * carry + scale * torch.randn(8)
        scale = (yield carry) or scale


def inner(n):
    drift = noise(0.1)
    next(drift)
    for i in range(n):
        yield X[(i * 16) % 320:][:16] + drift.send(0.1 + 0.01 * (i % 5))


def batches():
    while True:
        yield from inner(33)
        yield from inner(17)


m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
source = batches()
for i in range(1200):
    x = next(source)
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
