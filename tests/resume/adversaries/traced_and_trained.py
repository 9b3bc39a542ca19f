# Tries: a traced module is trained as a part of another one; its buffers are in C++.
# expected: refused
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8) * 3 + 1
body = torch.jit.trace(nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU()), X[:16])
m = nn.Sequential(body, nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", (m(X).squeeze(1) - X.sum(1)).pow(2).mean().item())
