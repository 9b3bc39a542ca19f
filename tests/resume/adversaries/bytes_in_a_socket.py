# Tries: bytes that forward() sends wait in a socket of the script's own, made in training and known by its number only; they are counted at the end.
# expected: refused
import os
import socket
import time
import torch
from torch import nn

torch.manual_seed(0)


def connect():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        with socket.create_connection(server.getsockname()) as here:
            there, _ = server.accept()
            os.dup2(here.fileno(), 200)
            os.dup2(there.fileno(), 201)
            there.close()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls % 20 == 0:
            os.write(200, b".")
        return self.b(self.a(x).relu()).squeeze(1)


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i == 5:
        connect()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
time.sleep(0.3)  # the last bytes are on their way
print("final", sum(p.double().sum().item() for p in m.parameters()), len(os.read(201, 1 << 20)))
