# Tries: a thread counts what came through a queue in a variable of the module, which the script prints.
# expected: refused
import queue
import threading
import torch
from torch import nn

torch.manual_seed(0)
came, seen = queue.Queue(), 0


def count():
    global seen
    while came.get():
        seen += 1
        came.task_done()


threading.Thread(target=count, daemon=True).start()
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
        came.put(True)
        came.join()
        print("seen", seen)
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), seen)
