# Tries: state in default arguments, function attributes, class attributes and enclosing cells.
# expected: exact
import torch
from torch import nn

torch.manual_seed(0)


def smooth(x, held=[torch.zeros(8)], n={"calls": 0}):
    n["calls"] += 1
    held[0] = 0.95 * held[0] + 0.05 * x.mean(0)
    return held[0]


def jitter(x):
    jitter.seen = getattr(jitter, "seen", torch.zeros(())) + x.sum()
    return x + 0.001 * jitter.seen.sin()


class Counted:
    total = torch.zeros(())
    made = 0

    def __init__(self, x):
        type(self).made += 1
        type(self).total = type(self).total * 0.9 + x.mean()


def stepper():
    count, last = 0, torch.zeros(8)

    def go(x):
        nonlocal count, last
        count += 1
        last = last * 0.5 + x[0]
        return x + last * (0.01 * (count % 5))

    return go


go = stepper()
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1000):
    x = X[(i * 16) % 320:][:16]
    x = go(jitter(x)) + smooth(x) + Counted(x).total * 0.1
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), Counted.made, flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), jitter.seen.item(), Counted.total.item())
