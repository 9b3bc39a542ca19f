# Tries: os.fork in the middle: a child computes something and hands it back through a pipe.
# short: yes
# expected: either
import os
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)


def in_child(value):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(w, repr(round(value * 0.5 + 0.001, 6)).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    text = os.read(r, 100)
    os.close(r)
    os.close(w)
    return float(text)


for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 100 == 50:
        o.param_groups[0]["lr"] = min(0.02, in_child(loss.item()))
    if i % 25 == 0:
        print(i, loss.item(), o.param_groups[0]["lr"], flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
