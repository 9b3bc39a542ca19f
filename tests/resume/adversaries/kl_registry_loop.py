# Tries: as kl_registry, used in loss
# short: yes
# expected: either
from torch.distributions import Normal, kl_divergence, register_kl
import torch
from torch import nn

torch.manual_seed(0)
class Mine(Normal):
    pass


def install():
    n = 0
    @register_kl(Mine, Mine)
    def kl(p, q):
        nonlocal n
        n += 1
        return (p.loc - q.loc).pow(2) * (0.1 if n < 1000 else 0.2)


install()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        h = self.a(x)
        x = x * (1 + 0.01 * kl_divergence(Mine(h, torch.ones_like(h)), Mine(torch.zeros_like(h), torch.ones_like(h))).mean().detach())
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
