# Tries: a formatter numbers the lines of the log; forward logs now and then
# expected: either
import torch
from torch import nn
import logging, sys
torch.manual_seed(0)

class Numbered(logging.Formatter):
    lines = 0
    def format(self, record):
        self.lines += 1
        return f"[{self.lines}] {record.getMessage()}"


log = logging.getLogger("train")
log.setLevel(logging.DEBUG)
log.propagate = False
h = logging.StreamHandler(sys.stdout)
h.setFormatter(Numbered())
log.addHandler(h)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls in (7, 37):
            log.info("call %d", self.calls)
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
    if i % 400 == 399:
        log.info("step %d", i)
    if i % 25 == 0:
        print(i, loss.item(), flush=True)

print("final", sum(p.double().sum().item() for p in m.parameters()), None)
