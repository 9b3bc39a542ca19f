# Tries: modules that get their parameters in the first forward, and a head that is made late.
# expected: exact
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.LazyLinear(32), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(1))
o = None
for i in range(1000):
    x = X[(i * 16) % 320:][:16]
    out = m(x).squeeze(1)
    if o is None:
        o = torch.optim.Adam(m.parameters(), 1e-2)
    if i == 300:
        head = nn.LazyLinear(1)
        head(x)
        o.add_param_group({"params": head.parameters(), "lr": 1e-3})
    if i >= 300:
        out = out + head(x).squeeze(1)
    loss = (out - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in [*m.parameters(), *head.parameters()]))
