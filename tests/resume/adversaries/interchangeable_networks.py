# Tries: two networks alike in every shape, drawn by lot: swapped, nothing but the values tells.
# short: yes
# expected: exact
import random
import torch
from torch import nn

torch.manual_seed(0)
random.seed(0)


def net():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))


X = torch.randn(320, 8)
a, b = net(), net()
oa, ob = torch.optim.Adam(a.parameters(), 1e-2), torch.optim.Adam(b.parameters(), 1e-2)
for i in range(1200):
    if random.random() < 0.1:
        a, b = b, a
    if random.random() < 0.05:
        oa, ob = ob, oa
    x = X[(i * 16) % 320:][:16]
    loss = (a(x).squeeze(1) - b(x).squeeze(1).detach() * 0.5 - x.sum(1)).pow(2).mean()
    oa.zero_grad()
    ob.zero_grad()
    loss.backward()
    oa.step()
    ob.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in a.parameters()), sum(p.double().sum().item() for p in b.parameters()))
