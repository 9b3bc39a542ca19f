# Tries: fork_rng, manual_seed in the middle, random states saved and set again by the script.
# expected: exact
import random
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
random.seed(0)
np.random.seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
saved, kept = torch.get_rng_state(), (random.getstate(), np.random.get_state())
for i in range(1200):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(i % 50)
        noise = torch.randn(8) * 0.1
    x = X[(i * 16) % 320:][:16] + noise + random.random() * 0.01 + float(np.random.rand()) * 0.01
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 70 == 69:
        now = torch.get_rng_state()
        torch.set_rng_state(saved)
        saved = now
    if i % 130 == 129:
        now = (random.getstate(), np.random.get_state())
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        kept = now
    if i % 300 == 299:
        torch.manual_seed(i)
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), torch.rand(1).item(), random.random(), np.random.rand())
