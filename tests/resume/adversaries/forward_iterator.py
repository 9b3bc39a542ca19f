# Tries: a C iterator that only forward() consumes, so it stands still in the ghost phase.
# short: yes
# expected: either
import itertools
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 32)
        self.b = nn.Linear(32, 1)
        self.noise = itertools.cycle([0.9, 1.0, 1.1, 1.3, 0.7])

    def forward(self, x):
        return self.b(torch.relu(self.a(x)) * next(self.noise)).squeeze(1)


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), next(m.noise))
