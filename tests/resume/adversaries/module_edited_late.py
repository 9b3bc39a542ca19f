# Tries: a module beside the script is edited between the lives; only what it does at the end is another thing.
# expected: either
# leftovers: yes
import os
import sys

sys.path.insert(0, ".")
if not os.path.exists("ending.py"):
    with open("ending.py", "w") as f:
        f.write("def ending(total):\n    return total\n")
import torch
from torch import nn
import ending

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", ending.ending(sum(p.double().sum().item() for p in m.parameters())))
