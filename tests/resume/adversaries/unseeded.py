# Tries: no seed anywhere: what the first life drew must come back, also for numpy, random and hash of objects; self-checked.
# expected: either
# seeded: no
import hashlib
import random
import numpy as np
import torch
from torch import nn

X = torch.randn(320, 8) + float(np.random.randn()) + random.random()
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
start = {k: v.clone() for k, v in m.state_dict().items()}
draws = []


def train(source):
    o = torch.optim.Adam(m.parameters(), 1e-2)
    for i in range(700):
        n = source(i)
        x = X[(i * 16) % 320:][:16] + n
        loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        if i % 25 == 0 and source is fresh:
            print(i, loss.item(), flush=True)
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in m.parameters())).hexdigest()


def fresh(i):
    draws.append(0.1 * torch.randn(8) + float(np.random.randn()) * 0.01 + random.gauss(0, 0.01))
    return draws[-1]


one = train(fresh)
m.load_state_dict(start)
print("consistent", one == train(lambda i: draws[i]), len(draws))
