# Tries: another program, started now and then in training, appends to a file that is read at the end only. A ghost starts it again.
# expected: refused
# ignore: notes.txt
import os
import subprocess
import torch
from torch import nn

torch.manual_seed(0)
if os.path.exists("notes.txt"):
    os.remove("notes.txt")
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
o = torch.optim.SGD(m.parameters(), 1e-2)
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 100 == 10:
        assert subprocess.Popen(["/bin/sh", "-c", "echo note >> notes.txt"]).wait() == 0
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
with open("notes.txt") as f:
    print("final", sum(p.double().sum().item() for p in m.parameters()), len(f.readlines()))
