# Tries: a module makes a tensor by from_numpy of its table when first called; the loop changes the table late
# expected: either
import torch
from torch import nn
import numpy as np
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0
        self.table = np.ones(8, dtype=np.float32)
        self.t = None
    def forward(self, x):
        self.calls += 1
        if self.t is None:
            self.t = torch.from_numpy(self.table)
        x = x * self.t
        return self.b(self.a(x).relu()).squeeze(1)


X = torch.randn(320, 8)

m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 500 == 499:
        m.table[i % 8] *= 0.9
    if i % 25 == 0:
        print(i, loss.item(), flush=True)

print("final", sum(p.double().sum().item() for p in m.parameters()), float(m.table.sum()), m.t.sum().item())
