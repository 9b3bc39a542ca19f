# Tries: counters in the defaults of an optimizer's step and of a function under torch.no_grad(), told at the end.
# expected: exact
import torch
from torch import nn
torch.manual_seed(0)
X = torch.randn(320, 8)
class Mine(torch.optim.Optimizer):
    def __init__(self, params): super().__init__(params, {"lr": 1e-2})
    @torch.no_grad()
    def step(self, closure=None, seen=[0]):
        seen[0] += 1
        for g in self.param_groups:
            for p in g["params"]:
                p.sub_(g["lr"] * p.grad)
class Net(nn.Linear):
    def forward(self, x):
        count(x)
        return super().forward(x)
@torch.no_grad()
def count(x, seen=[0]):
    seen[0] += 1
    return seen[0]
m = Net(8, 1)
o = Mine(m.parameters())
for i in range(500):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad(); loss.backward(); o.step()
    if i % 20 == 0:
        print(i, loss.item(), flush=True)
def told(f):
    while hasattr(f, "__wrapped__"): f = f.__wrapped__
    return f.__defaults__[-1][0]
print("final", sum(p.double().sum().item() for p in m.parameters()), count(0), told(Mine.step))
