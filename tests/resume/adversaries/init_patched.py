# Tries: nn.init function patched by counting closure; forward re-inits now and then
# expected: either

import torch
from torch import nn

torch.manual_seed(0)
def install():
    old, n = nn.init.uniform_, 0
    def uniform_(t, a=0.0, b=1.0, generator=None):
        nonlocal n
        n += 1
        return old(t, a, b * (1 if n < 8 else 2), generator)
    nn.init.uniform_ = uniform_


install()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0
        self.register_buffer('noise', torch.zeros(8))
    def forward(self, x):
        self.calls += 1
        if self.calls % 140 == 0:
            nn.init.uniform_(self.noise, 0, 0.1)
        x = x + self.noise
        return self.b(self.a(x).relu()).squeeze(1)


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
print(m.noise)
print("final", sum(p.double().sum().item() for p in m.parameters()), flush=True)
