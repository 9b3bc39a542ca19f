# Tries: gc.freeze() hides every object made so far from whoever looks for living tensors.
# expected: either
# clocks: alive
import gc
import torch
from torch import nn

torch.manual_seed(0)


def hidden():
    state = torch.zeros(8)

    def bump(x):
        state.mul_(0.9).add_(x.mean(0) * 0.1)
        return x + state

    return iter(lambda: bump, None)


source = hidden()
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
gc.freeze()
gc.disable()
for i in range(1200):
    x = next(source)(X[(i * 16) % 320:][:16])
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i == 600:
        gc.freeze()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
