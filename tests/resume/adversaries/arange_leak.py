# Tries: a value leaves a tensor through the C++ argument parser (arange, zeros, linspace, full) and steers the learning rate.
# short: yes
# expected: either
import itertools
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
rates = itertools.cycle([1e-2, 5e-3, 2e-3])
seen, nxt = 0, 500
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    out = m(x).squeeze(1)
    loss = (out - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    n = (out.detach() > 0).sum()
    seen += len(torch.arange(n)) + torch.zeros(n, 2).shape[0]
    if seen > nxt:
        nxt += 500
        for g in o.param_groups:
            g["lr"] = next(rates)
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.sum().item() for p in m.parameters()), seen)
