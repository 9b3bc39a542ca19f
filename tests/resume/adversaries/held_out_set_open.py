# Tries: the file of the test set is opened before training and read behind it; it is another one when the killed script comes back.
# expected: either
# leftovers: yes
# ignore: test.txt
import os
import torch
from torch import nn

torch.manual_seed(0)
test = open("test.txt") if os.path.exists("test.txt") else None
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
o = torch.optim.SGD(m.parameters(), 1e-2)
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
held_out = test.read().split() if test else ["0.5"] * 64
with torch.no_grad():
    print("final", m(torch.tensor([float(v) for v in held_out]).view(8, 8)).sum().item())
