# Tries: a traced function, which keeps a tensor of its own as a constant, is a part of the loss.
# expected: refused
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
weights = torch.rand(16)
weighed = torch.jit.trace(lambda a, b: ((a - b).pow(2) * weights).mean(), (torch.randn(16), torch.randn(16)))
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = weighed(m(x).squeeze(1), x.sum(1))
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
