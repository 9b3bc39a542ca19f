# Tries: a module keeps a tensor that was made inside of vmap.
# expected: refused
import torch
from torch import nn
from torch.func import vmap
torch.manual_seed(0)
X = torch.randn(320, 8)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
    def forward(self, x):
        self.h = self.a(x).tanh()
        return self.b(self.h).squeeze(-1)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(500):
    x = X[(i * 16) % 320:][:16]
    loss = (vmap(m)(x) - x.sum(1)).pow(2).mean()
    o.zero_grad(); loss.backward(); o.step()
    if i % 20 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
