# Tries: the number of threads comes from outside; it rounds only a sum at the end that is large enough to be divided.
# expected: either
# leftovers: yes
import os
import torch
from torch import nn

torch.set_num_threads(int(os.environ.get("CORES", "1")))
torch.manual_seed(0)
X = torch.randn(320, 8)
big = torch.randn(2_000_000)
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
print("final", (big * loss.detach()).sum().item(), (big.view(1000, 2000) @ big.view(2000, 1000)).sum().item())
