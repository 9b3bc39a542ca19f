# Tries: a number that only forward() changes, too deep to be handed to a ghost, decides which of two lines takes the loss; what the other line
# does besides shows at the end only.
# expected: either
import gc
from types import SimpleNamespace

import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.told = SimpleNamespace(of=SimpleNamespace(forward=SimpleNamespace(calls=0)))
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x):
        self.told.of.forward.calls += 1
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
    if m.told.of.forward.calls == 30:
        gc.set_threshold(700, 10, int(1e6 * loss.item()))
    else:
        last = loss.item()
    if i % 25 == 0:
        print(i, last, flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), gc.get_threshold()[2])
