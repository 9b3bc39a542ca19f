# Tries: lru_cache holds tensors that are changed in place later.
# expected: either
import functools
import torch
from torch import nn

torch.manual_seed(0)


@functools.lru_cache(maxsize=None)
def position(n):
    return torch.randn(n, 8) * 0.1


X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1200):
    n = 4 + i % 13
    x = X[(i * 16) % 320:][:n] + position(n)
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    position(n).mul_(0.999)
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(position(n).double().sum().item() for n in range(4, 17)))
