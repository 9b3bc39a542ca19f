# Tries: a background thread changes a weight whenever the main thread asks it to.
# expected: either
import queue
import threading
import torch
from torch import nn

torch.manual_seed(0)
asked, answered = queue.Queue(), queue.Queue()
decay = torch.ones(8)


def helper():
    while (n := asked.get()) is not None:
        decay.mul_(0.999).add_(0.001 * (n % 3))
        answered.put(decay.sum())


threading.Thread(target=helper, daemon=True).start()
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1000):
    asked.put(i)
    total = answered.get()
    x = X[(i * 16) % 320:][:16] * decay
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), total.item(), flush=True)
asked.put(None)
print("final", sum(p.double().sum().item() for p in m.parameters()))
