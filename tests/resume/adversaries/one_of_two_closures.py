# Tries: forward() puts one closure in the place of another of the same make, once, too deep to be handed to a ghost; it is used at the end only.
# expected: either
from types import SimpleNamespace

import torch
from torch import nn

torch.manual_seed(0)


def scaled(by):
    def scale(value):
        return value * by
    return scale


single, double = scaled(1), scaled(2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.told = SimpleNamespace(of=SimpleNamespace(forward=SimpleNamespace(calls=0, scale=single)))

    def forward(self, x):
        self.told.of.forward.calls += 1
        if self.told.of.forward.calls == 27:
            self.told.of.forward.scale = double
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
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), m.told.of.forward.scale(1.5))
