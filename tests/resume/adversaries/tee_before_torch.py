# Tries: a Tee class in the place of stdout, before torch
# expected: exact
import sys


class Tee:
    def __init__(self, path):
        self.terminal, self.log = sys.stdout, open(path, "w")

    def write(self, s):
        self.terminal.write(s)
        self.log.write(s)

    def flush(self):
        self.terminal.flush()
        self.log.flush()


sys.stdout = Tee("log.txt")
import torch
from torch import nn

torch.manual_seed(0)



class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x):
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
print("final", sum(p.double().sum().item() for p in m.parameters()), None)
