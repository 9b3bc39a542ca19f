# Tries: forward returns its input, a parameter, a view of its argument, the same tensor twice, a buffer it owns; the script relies on it.
# short: yes
# expected: either
import torch
from torch import nn

torch.manual_seed(0)


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(8) * 0.1)
        self.register_buffer("out", torch.zeros(8))

    def forward(self, x):
        self.out.mul_(0.9).add_(x.detach().mean(0) * 0.1)
        return x, x[:, :4], self.w, self.out, (self.out, self.out)


X = torch.randn(320, 8)
odd, m = Odd(), nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam([*odd.parameters(), *m.parameters()], 1e-2)
same, held = 0, None
for i in range(1000):
    x = X[(i * 16) % 320:][:16].clone()
    a, view, w, own, (p, q) = odd(x)
    same += (a is x) + (w is odd.w) + (own is odd.out) + (p is q)
    with torch.no_grad():
        view.mul_(1.01)
        own.add_(0.001)
        w.mul_(0.9999)
    held = own if held is None else held
    loss = (m(x + w + held).squeeze(1) - x.sum(1)).pow(2).mean() * (1 + 0.001 * same % 3)
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), same, held.sum().item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), odd.out.sum().item(), same, held is odd.out)
