# Tries: a signal handler that changes the training, sent by the script to itself.
# expected: either
import os
import signal
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)
got = 0


def slower(number, frame):
    global got
    got += 1
    with torch.no_grad():
        m[0].bias.mul_(0.9)
    for g in o.param_groups:
        g["lr"] *= 0.9


signal.signal(signal.SIGUSR1, slower)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 90 == 89:
        os.kill(os.getpid(), signal.SIGUSR1)
    if i % 25 == 0:
        print(i, loss.item(), got, flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), got)
