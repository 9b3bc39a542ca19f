# Tries: an autograd Function that counts its backwards and rounds by that count.
# short: yes
# expected: either
import torch
from torch import nn

torch.manual_seed(0)


class Rounded(torch.autograd.Function):
    calls = 0
    scale = torch.ones(())

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.extra = Rounded.calls
        return (x * 8).round() / 8

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        Rounded.calls += 1
        Rounded.scale = 0.99 * Rounded.scale + 0.01 * grad.abs().max()
        return grad * (x.abs() < 3) * (1 + 0.1 * (ctx.extra % 3)) / (1 + Rounded.scale)


X = torch.randn(320, 8)
a, b = nn.Linear(8, 32), nn.Linear(32, 1)
o = torch.optim.Adam([*a.parameters(), *b.parameters()], 1e-2)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (b(Rounded.apply(a(x)).relu()).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", Rounded.calls, Rounded.scale.item(), sum(p.double().sum().item() for p in b.parameters()))
