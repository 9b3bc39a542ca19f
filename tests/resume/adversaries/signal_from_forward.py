# Tries: forward() sends a signal to its own process, once; the handler changes something in C that is seen at the end only.
# expected: either
import gc
import os
import signal
import torch
from torch import nn

torch.manual_seed(0)
signal.signal(signal.SIGUSR1, lambda number, frame: gc.set_threshold(700, 10, 77))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 27:
            os.kill(os.getpid(), signal.SIGUSR1)
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
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), gc.get_threshold()[2])
