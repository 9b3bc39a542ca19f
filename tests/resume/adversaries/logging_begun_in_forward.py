# Tries: the first forward sets up logging (a helper that adds a handler when there is none); a line is logged at the end
# expected: either
import torch
from torch import nn
import logging, sys
torch.manual_seed(0)

def get_logger():
    log = logging.getLogger("net")
    if not log.handlers:
        log.setLevel(logging.INFO)
        log.addHandler(logging.StreamHandler(sys.stdout))
    return log
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 1:
            get_logger().info("first call, input %s", tuple(x.shape))
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
logging.getLogger("net").info("training is done")
print("final", sum(p.double().sum().item() for p in m.parameters()), None)
