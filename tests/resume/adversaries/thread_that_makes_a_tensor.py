# Tries: a thread waits for an Event and makes a tensor of random numbers each time.
# expected: refused
import threading
import torch
from torch import nn

torch.manual_seed(0)
over = threading.Event()


def make():
    while not over.wait(0.05):
        torch.randn(3)


maker = threading.Thread(target=make)
maker.start()
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1400):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
over.set()
maker.join()
print("final")
