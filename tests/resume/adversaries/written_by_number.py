# Tries: a file that is written by its number only, and stays open; no variable holds the number. A ghost has /dev/null in its place.
# expected: refused
import os
import torch
from torch import nn

torch.manual_seed(0)
notes = os.open("notes.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
os.dup2(notes, 77)
os.close(notes)
notes = 77
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
o = torch.optim.SGD(m.parameters(), 1e-2)
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 50 == 10:
        os.write(notes, b"%d\n" % i)
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
