# Tries: a forward hook counts in a global list; nobody looks at it before the end.
# expected: either
import torch
from torch import nn

torch.manual_seed(0)
calls, largest = [0], {"out": float("-inf")}


def hook(module, args, out):
    calls[0] += 1
    largest["n"] = calls[0]


X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
m[0].register_forward_hook(hook)
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", calls, largest, sum(p.double().sum().item() for p in m.parameters()))
