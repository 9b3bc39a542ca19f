# Tries: entropy of the system, by every name that Python, numpy and torch have for it, decides what is written
# short: yes
# expected: exact
# seeded: no
import random
import secrets
import uuid

import numpy as np
import torch

torch.manual_seed(0)
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
ways = {
    "numpy, old": lambda: np.random.RandomState().rand(),
    "numpy": lambda: np.random.default_rng().random(),
    "numpy, global": lambda: (np.random.seed(), np.random.rand())[1],
    "system": lambda: random.SystemRandom().random(),
    "secrets": lambda: secrets.randbelow(10**9) / 1e9,
    "uuid": lambda: uuid.uuid4().int / 2**128,
    "own": lambda: random.Random().random(),
    "python, global": lambda: (random.seed(), random.random())[1],
    "torch": lambda: (torch.seed(), torch.rand(1).item())[1],
}
best, count = dict.fromkeys(ways, 0.0), 0
for i in range(4000):
    loss = net(torch.ones(2, 4)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    for name, draw in ways.items():
        drawn = draw()
        if drawn > best[name]:
            best[name] = drawn
            with open("best.txt", "w") as f:
                f.write(repr(best))
    count += 1
with open("best.txt") as f:
    print(count, f.read() == repr(best), flush=True)
