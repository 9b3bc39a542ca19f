# Tries: a wrapper's forward registers a hook on its output in each call, as the wrappers of Lightning Fabric do; the hook checks a flag and counts.
# expected: exact
import torch
from torch import nn

torch.manual_seed(0)


class Wrapped(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module, self.within = module, True

    def forward(self, x):
        out = self.module(x)
        if out.requires_grad:
            out.register_hook(self.check)
        return out

    def check(self, *_):
        if not self.within:
            raise RuntimeError("a backward past the strategy")


X = torch.randn(320, 8)
m = Wrapped(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1)))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
