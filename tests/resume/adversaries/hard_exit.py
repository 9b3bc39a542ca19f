# Tries: the end comes by os._exit in the middle of a line; only what was flushed is there.
# exit: 7
# expected: either
import os
import sys
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
out = open("metrics.txt", "w", buffering=1 << 20)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    out.write(f"{i} {loss.item()}\n")
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
out.flush()
torch.save([p.detach() for p in m.parameters()], "end.pt")
sys.stdout.write("half a line")
sys.stdout.flush()
os._exit(7)
