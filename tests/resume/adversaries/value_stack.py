# Tries: a running total that lives only on the value stack of the interpreter while step() runs.
# short: yes
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
    total = torch.zeros(())
    for i in range(1200):
        total = total * 0.99 + step(X[(i * 16) % 640:][:16]) + max(step(X[:8]) * 2, step(X[8:16]))
        if i % 25 == 0:
            print(i, float(total), flush=True)
    return total


print("final", run().item())
