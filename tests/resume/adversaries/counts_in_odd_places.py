# Tries: a count that forward() keeps on a logger, and one in a future that is made anew at each call. Both are seen at the end only.
# expected: either
import concurrent.futures
import logging
import torch
from torch import nn

torch.manual_seed(0)
log = logging.getLogger("train")
log.calls = 0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.box = concurrent.futures.Future()
        self.box.set_result(0)

    def forward(self, x):
        log.calls += 1
        before, self.box = self.box, concurrent.futures.Future()
        self.box.set_result(before.result() + 1)
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
print("final", sum(p.double().sum().item() for p in m.parameters()), log.calls, m.box.result())
