# Tries: what a comprehension has collected hangs on no name, and among it is a count that only forward() changes.
# expected: either
from types import SimpleNamespace

import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.told = SimpleNamespace(of=SimpleNamespace(forward=SimpleNamespace(calls=0)))

    def forward(self, x):
        self.told.of.forward.calls += 1
        return self.b(self.a(x).relu()).squeeze(1)


def train(fold):
    m = Net()
    o = torch.optim.Adam(m.parameters(), 1e-2)
    for i in range(400):
        x = X[(i * 16) % 320:][:16]
        loss = (m(x) - x.sum(1) * fold).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        if i % 25 == 0:
            print(fold, i, loss.item(), flush=True)
    return {"told": m.told, "loss": loss.item()}


results = [train(fold) for fold in range(1, 6)]
for found in results:
    print("final", found["loss"], found["told"].of.forward.calls)
