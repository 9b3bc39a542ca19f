# Tries: the file of the test set is another one when the killed script comes back; it is looked at only at the end.
# expected: either
# leftovers: yes
# ignore: test.txt
import os
import torch
from torch import nn

held_out = ["0.5"] * 64
if os.path.exists("test.txt"):
    with open("test.txt") as f:
        held_out = f.read().split()
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
with torch.no_grad():
    print("final", m(torch.tensor([float(v) for v in held_out]).view(8, 8)).sum().item())
