# Tries: hooks keep meters, objects of the script's own, in a defaultdict that makes them when they are first asked for
# expected: exact
from collections import defaultdict

import torch
from torch import nn

torch.manual_seed(0)


class AverageMeter:
    def __init__(self):
        self.sum, self.count, self.worst = 0.0, 0, None

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n
        self.worst = value if self.worst is None else max(self.worst, value)

    @property
    def avg(self):
        return self.sum / max(1, self.count)


meters = defaultdict(AverageMeter)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
for name, layer in m.named_modules():
    if isinstance(layer, nn.Linear):
        layer.register_forward_hook(lambda _m, _i, out, name=name: meters[f"{name}.act"].update(out.detach().abs().mean().item(), len(out)))
        layer.register_full_backward_hook(lambda _m, gi, go, name=name: meters[f"{name}.grad"].update(go[0].norm().item()))

X = torch.randn(320, 8)
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 50 == 0:
        print(i, loss.item(), {k: (round(v.avg, 6), v.count) for k, v in sorted(meters.items())}, flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), {k: v.sum for k, v in sorted(meters.items())})
