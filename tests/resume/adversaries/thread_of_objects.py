# Tries: a thread only takes from a queue and calls format(); the script puts objects of its own there, which count.
# expected: refused
import queue
import threading
import torch
from torch import nn

torch.manual_seed(0)
things = queue.Queue()


class Counts:
    seen = 0

    def format(self):
        Counts.seen += 1


def take():
    while True:
        thing = things.get()
        if thing is None:
            return
        thing.format()


taker = threading.Thread(target=take)
taker.start()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x):
        things.put(Counts())
        return self.b(self.a(x).relu())


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1400):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
things.put(None)
taker.join()
print("final", sum(p.double().sum().item() for p in m.parameters()), Counts.seen)
