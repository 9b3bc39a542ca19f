# Tries: a thread appends what it takes from a queue to a file, which the script reads at its end.
# expected: refused
import queue
import threading
import torch
from torch import nn

torch.manual_seed(0)
lines = queue.Queue()


def append():
    while (line := lines.get()) is not None:
        with open("lines.txt", "a") as f:
            f.write(line)


appender = threading.Thread(target=append)
appender.start()
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1400):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        lines.put(f"{i} {loss.item()!r}\n")
        print(i, loss.item(), flush=True)
lines.put(None)
appender.join()
print("final", len(open("lines.txt").read().splitlines()), sum(p.double().sum().item() for p in m.parameters()))
