# Tries: a Jacobian with vectorize=True, in the middle of training.
# expected: exact
import torch
from torch import nn
from torch.autograd.functional import jacobian
torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(400):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).sum(1) - x.sum(1)).pow(2).mean()
    o.zero_grad(); loss.backward(); o.step()
    if i % 20 == 0:
        print(i, loss.item(), jacobian(lambda z: m(z).sum(0), x[:2], vectorize=True).sum().item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
