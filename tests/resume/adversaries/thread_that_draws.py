# Tries: a thread draws from the global generators of random, numpy and torch whenever it is asked to.
# expected: refused
import queue
import random
import threading
import numpy
import torch
from torch import nn

torch.manual_seed(0)
random.seed(0)
numpy.random.seed(0)
asked, answered = queue.Queue(), queue.Queue()


def draw():
    while asked.get():
        answered.put((random.random(), numpy.random.rand(), torch.rand(()).item()))


threading.Thread(target=draw, daemon=True).start()
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1400):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        asked.put(True)
        print(answered.get(), random.random())
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
