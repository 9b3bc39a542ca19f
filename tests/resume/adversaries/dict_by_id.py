# Tries: own momentum in dicts keyed by id(parameter) and by parameter, as hand-written optimizers do.
# expected: either
# clocks: o
import torch
from torch import nn

torch.manual_seed(0)


class Mine:
    def __init__(self, params, lr):
        self.params, self.lr = list(params), lr
        self.speed = {id(p): torch.zeros_like(p) for p in self.params}
        self.norm = {p: 0.0 for p in self.params}
        self.t = 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        for p in self.params:
            v = self.speed[id(p)]
            v.mul_(0.9).add_(p.grad)
            self.norm[p] = 0.99 * self.norm[p] + 0.01 * v.norm()
            p.sub_(v, alpha=self.lr * min(1.0, self.t / 500))
            p.grad = None


X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = Mine(m.parameters(), 3e-3)
for i in range(1500):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), [float(v) for v in o.norm.values()], flush=True)
print("final", sum(v.double().sum().item() for v in o.speed.values()), o.t)
