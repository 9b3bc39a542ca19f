# Tries: numpy views of parameters, kept in closures, through which the weights are decayed.
# expected: exact
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)


def decayer(params):
    views = [p.detach().numpy() for p in params]
    flat = views[0].reshape(-1)[::3]

    def decay(rate):
        for v in views:
            v *= 1 - rate
        flat[:] = np.clip(flat, -0.5, 0.5)
        return float(np.abs(views[0]).sum())

    return decay


decay = decayer(m.parameters())
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    size = decay(1e-3)
    if i % 25 == 0:
        print(i, loss.item(), size, flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
