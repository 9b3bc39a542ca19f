# Tries: a package that forward() uses loads the C library and draws a random number from it; what is drawn next is seen at the end only.
# expected: refused
import os
import sys
import torch
from torch import nn

torch.manual_seed(0)
os.makedirs("site-packages", exist_ok=True)
with open("site-packages/draws.py", "w") as f:
    f.write("import ctypes\ndef draw():\n    return ctypes.CDLL('libc.so.6').rand()\n")
sys.path.insert(0, os.path.abspath("site-packages"))
import draws


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x):
        draws.draw()
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
print("final", sum(p.double().sum().item() for p in m.parameters()), draws.draw())
