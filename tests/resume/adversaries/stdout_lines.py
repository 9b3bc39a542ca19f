# Tries: stdout replaced by an object that counts lines; forward prints now and then
# short: yes
# expected: either
import sys
import torch
from torch import nn

torch.manual_seed(0)
class Counted:
    def __init__(self, inner):
        self.inner, self.lines = inner, 0

    def write(self, text):
        self.lines += text.count("\n")
        return self.inner.write(text)

    def flush(self):
        self.inner.flush()


sys.stdout = Counted(sys.stdout)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls % 40 == 0 and self.calls < 130:
            print('call', self.calls)
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
print('lines', sys.stdout.lines)
print("final", sum(p.double().sum().item() for p in m.parameters()), flush=True)
