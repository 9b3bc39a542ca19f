# Tries: numbers that come over a socket pair from a thread that counts.
# expected: refused
import socket
import threading
import torch
from torch import nn

torch.manual_seed(0)
here, there = socket.socketpair()


def server():
    n = 0
    while there.recv(1):
        n += 1
        there.send(bytes([n % 7]))


threading.Thread(target=server, daemon=True).start()
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)
for i in range(1000):
    here.send(b"?")
    o.param_groups[0]["lr"] = 1e-2 / (1 + here.recv(1)[0])
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
