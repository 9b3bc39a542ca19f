# Tries: a file of data is opened in the first step and read line by line in training; its end is another one when the killed script comes back.
# expected: either
# leftovers: yes
# ignore: test.txt
import os
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
o = torch.optim.SGD(m.parameters(), 1e-2)
lines = None
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i == 3 and os.path.exists("test.txt"):
        lines = open("test.txt")
    if lines and i % 100 == 5:
        o.param_groups[0]["lr"] = float(lines.readline())
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
