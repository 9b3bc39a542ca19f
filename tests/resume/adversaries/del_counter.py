# Tries: __del__ counts dead batches, and the count steers the learning rate.
# expected: either
import torch
from torch import nn

torch.manual_seed(0)
dead = []


class Batch:
    def __init__(self, x):
        self.x = x

    def __del__(self):
        dead.append(float(self.x[0, 0]) > 0)


X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)
for i in range(1200):
    b = Batch(X[(i * 16) % 320:][:16])
    loss = (m(b.x).squeeze(1) - b.x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.param_groups[0]["lr"] = 1e-2 / (1 + 0.01 * sum(dead[-50:]))
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), len(dead), sum(dead), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
