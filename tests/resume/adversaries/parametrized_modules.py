# Tries: weight_norm, spectral_norm with its power iteration in forward, an own parametrization with a counter.
# expected: either
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

torch.manual_seed(0)


class Quantized(nn.Module):
    def __init__(self):
        super().__init__()
        self.uses = 0

    def forward(self, w):
        self.uses += 1
        return w + (torch.round(w * 64) / 64 - w).detach() * min(1.0, self.uses / 1500)


X = torch.randn(320, 8)
a, b, c = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 1)
parametrizations.weight_norm(a)
parametrizations.spectral_norm(b)
parametrize.register_parametrization(c, "weight", Quantized())
m = nn.Sequential(a, nn.ReLU(), b, nn.ReLU(), c)
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(800):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 40 == 0:
        print(c.weight.abs().max().item(), b.weight.norm().item())
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), c.parametrizations.weight[0].uses)
