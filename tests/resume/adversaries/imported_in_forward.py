# Tries: forward() loads a file of the script's own by its path, once, at a call at which nobody looks; the file changes something in C. Seen at the end only.
# expected: either
# leftovers: yes
# ignore: late
import gc
import importlib.util
import os
import sys
import torch
from torch import nn

torch.manual_seed(0)
os.makedirs("late", exist_ok=True)
if not os.path.exists("late/helper.py"):
    with open("late/helper.py", "w") as f:
        f.write("__import__('gc').set_threshold(700, 10, 77)\n")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 27:
            spec = importlib.util.spec_from_file_location("late_helper", "late/helper.py")
            sys.modules["late_helper"] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules["late_helper"])
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
print("final", sum(p.double().sum().item() for p in m.parameters()) + gc.get_threshold()[2])
