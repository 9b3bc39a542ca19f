# Tries: forward draws from Python's and numpy's global generators, reads the clock and sometimes raises.
# expected: either
import random
import time
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
random.seed(0)
np.random.seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])
        self.head = nn.Linear(8, 1)
        self.spent = 0.0

    def forward(self, x):
        began = time.perf_counter()
        for layer in self.layers:
            if random.random() < 0.3:
                continue
            x = x + layer(x).relu() * float(np.random.choice([0.5, 1.0, 1.5]))
        if np.random.rand() < 0.05:
            raise RuntimeError("bad luck")
        self.spent += time.perf_counter() - began
        return self.head(x).squeeze(1)


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
bad = 0
for i in range(1000):
    x = X[(i * 16) % 320:][:16]
    try:
        loss = (m(x) - x.sum(1)).pow(2).mean()
    except RuntimeError as e:
        bad += len(str(e)) > 0
        continue
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 20 == 0:
        print(i, loss.item(), bad, random.random(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), bad, m.spent > 0)
