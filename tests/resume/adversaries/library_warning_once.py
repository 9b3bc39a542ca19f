# Tries: the forward of an installed package says something once, as transformers' logger.warning_once
# expected: either
import torch
from torch import nn
import os, sys
torch.manual_seed(0)

os.makedirs("vendor/site-packages", exist_ok=True)
with open("vendor/site-packages/somelib.py", "w") as f:
    f.write("""
import functools, sys
from torch import nn

@functools.lru_cache(None)
def warning_once(text):
    print("somelib:", text, flush=True)

class Act(nn.Module):
    def forward(self, x):
        warning_once("inputs are not normalized")
        return x.relu()
""")
sys.path.insert(0, os.path.abspath("vendor/site-packages"))
import somelib
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0
        self.act = somelib.Act()
    def forward(self, x):
        self.calls += 1
        x = x + 0 * self.act(x)
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
