# Tries: a class derived from Thread, which waits for an Event that it holds and looks at the clock.
# expected: either
# clocks: beat
import threading
import time
import torch
from torch import nn

torch.manual_seed(0)


class Beat(threading.Thread):
    def __init__(self, every):
        super().__init__(daemon=True)
        self.every, self.over = every, threading.Event()

    def run(self):
        while not self.over.wait(self.every):
            time.monotonic()


beat = Beat(0.2)
beat.start()
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
        print(i, loss.item(), flush=True)
beat.over.set()
beat.join()
print("final", sum(p.double().sum().item() for p in m.parameters()))
