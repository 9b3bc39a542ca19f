# Tries: the last 20 log records are kept in a deque by a handler; a forward logs a rare warning, the ring is told at the end
# expected: either
import torch
from torch import nn
import logging
from collections import deque
torch.manual_seed(0)

class Ring(logging.Handler):
    def __init__(self):
        super().__init__()
        self.ring = deque(maxlen=5)

    def emit(self, record):
        self.ring.append(record)


log = logging.getLogger("train")
log.setLevel(logging.INFO)
ring = Ring()
log.addHandler(ring)
log.propagate = False
for k in range(6):
    log.info("setting %d", k)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls % 37 == 0 and self.calls < 80:
            log.warning("odd batch at call %d", self.calls)
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

print("final", sum(p.double().sum().item() for p in m.parameters()), [r.getMessage() for r in ring.ring])
