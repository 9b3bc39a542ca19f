# Tries: a scripted module, made by another program and loaded, counts in C++. It is read at the end only.
# expected: refused
# ignore: counter.pt
# wait: 30
import subprocess
import sys
import torch
from torch import nn

torch.manual_seed(0)
MAKE = """
import torch
class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n += 1
        return x
torch.jit.script(Counter()).save("counter.pt")
"""
with open("make.py", "w") as f:
    f.write(MAKE)
subprocess.run([sys.executable, "-S", "make.py"], check=True, env={"PYTHONPATH": ":".join(sys.path)})


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.counter = torch.jit.load("counter.pt")

    def forward(self, x):
        x = self.counter(x)
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
print("final", sum(p.double().sum().item() for p in m.parameters()), m.counter.n)
