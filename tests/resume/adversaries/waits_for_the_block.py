# Tries: a view of a large output waits on the value stack while a whole block of training runs in the same expression.
# expected: either
import torch
from torch import nn

torch.manual_seed(0)
X, P = torch.randn(640, 8), torch.randn(100_000, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters())


def block(steps):
    for i in range(steps):
        x = X[(i * 16) % 640:][:16]
        loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        if i % 25 == 0:
            print(i, flush=True)
    return loss.detach()


def run():
    total = torch.zeros(4)
    for _ in range(4):
        with torch.no_grad():
            out = m(P).squeeze(1)
        total += torch.add(out[:4], block(1200))
    return total


print("final", run().tolist())
