# Tries: many random sources of the script's own: torch.Generator in dropout, random.Random with its spare gauss, numpy old and new.
# short: yes
# expected: exact
import random
import numpy as np
import torch
from torch import nn

torch.manual_seed(0), random.seed(1), np.random.seed(1)
g = torch.Generator().manual_seed(7)
r = random.Random(3)
old, new, mt = np.random.RandomState(1), np.random.Generator(np.random.Philox(2)), np.random.Generator(np.random.MT19937(4))


class Drop(nn.Module):
    def __init__(self, gen):
        super().__init__()
        self.gen = gen

    def forward(self, x):
        return x * (torch.rand(x.shape, generator=self.gen) > 0.2) / 0.8


X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), Drop(g), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1000):
    x = X[(i * 16) % 320:][:16]
    x = x * (1 + 0.01 * r.gauss(0, 1)) + 0.01 * old.randn() + 0.01 * new.normal() + 0.01 * float(mt.random(dtype="float32")) + 0.01 * torch.randn(1, generator=g) + 0.01 * torch.randn(1)
    if random.random() < 0.3:
        x = x + random.gauss(0, 0.01)
    if np.random.rand() < 0.3:
        x = x + float(np.random.randn()) * 0.01
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i == 0:
        random.seed(11); np.random.seed(12)
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", r.gauss(0, 1), old.randn(), new.normal(), torch.randn(1, generator=g).item(), random.gauss(0, 1), np.random.randn())
