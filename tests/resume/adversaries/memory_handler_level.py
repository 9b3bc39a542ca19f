# Tries: forward lowers a MemoryHandler's flush level once, and capacity
# expected: either
import logging, logging.handlers, sys
import torch
from torch import nn

torch.manual_seed(0)
log = logging.getLogger('t')
log.setLevel(20)
log.propagate = False
h = logging.handlers.MemoryHandler(10000, target=logging.StreamHandler(sys.stdout))
log.addHandler(h)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 60:
            h.capacity = 3
        return self.b(self.a(x).relu()).squeeze(1)


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)

for i in range(1200):
    x = X[(i * 16) % 320:][:16]

    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()

    if i % 25 == 0:
        print(i, loss.item(), flush=True)
log.info('a')
log.info('b')
log.info('c')
print('between')
log.info('d')
log.handlers[0].flush()
print("final", sum(p.double().sum().item() for p in m.parameters()), flush=True)
