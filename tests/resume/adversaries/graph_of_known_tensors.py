# Tries: a graph from before the image whose every saved tensor is a variable of the script; backward goes through it much later.
# expected: either
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
w = nn.Parameter(torch.randn(8))
c = torch.randn(8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD([*m.parameters()], 1e-2)
kept = (w * c).sum()
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
kept.backward()
print("final", sum(p.double().sum().item() for p in m.parameters()), w.grad.sum().item())
