# Tries: a class registered as pytree node whose flatten counts; used in func in forward
# expected: either
from torch.utils import _pytree as P
import torch
from torch import nn

torch.manual_seed(0)
class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b


def install():
    n = 0
    def flat(p):
        nonlocal n
        n += 1
        s = 1.0 if n < 1200 else 0.5
        return [p.a * s, p.b], None
    P.register_pytree_node(Pair, flat, lambda v, c: Pair(*v))


install()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        p = P.tree_map(lambda t: t, Pair(x, x))
        x = p.a
        return self.b(self.a(x).relu()).squeeze(1)


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)

for i in range(1200):
    x = X[(i * 16) % 320:][:16]

    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()

    if i % 25 == 0:
        print(i, loss.item(), flush=True)

print("final", sum(p.double().sum().item() for p in m.parameters()), flush=True)
