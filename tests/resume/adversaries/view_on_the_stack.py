# Tries: a view of a known tensor waits on the value stack while a step runs: the tensor gets its content back, the view would not. Read at the end only.
# expected: exact
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(640, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters())


def step(x):
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    return loss.detach()


def run():
    total = torch.zeros(4)
    for i in range(1200):
        with torch.no_grad():
            out = m(X[:4]).squeeze(1)
        total += torch.add(out[:], step(X[(i * 16) % 640:][:16]))
        if i % 25 == 0:
            print(i, flush=True)
    return total


print("final", run().tolist())
