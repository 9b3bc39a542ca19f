# Tries: an autograd Function of the script's own packs the gradients that go through it into a stream. Its length is seen at the end only.
# expected: refused
import zlib
import torch
from torch import nn

torch.manual_seed(0)
seen = zlib.compressobj()


class Watched(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        seen.compress(grad.numpy().tobytes())
        return grad


X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (Watched.apply(m(x)) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), len(seen.flush()))
