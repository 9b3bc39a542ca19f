# Tries: activation checkpointing runs forward again inside backward, with dropout and its saved random state.
# expected: either
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.3))
        self.b = nn.Linear(32, 1)
        self.runs = 0

    def part(self, x):
        self.runs += 1
        return self.a(x) * (1 + 0.01 * torch.rand(1))

    def forward(self, x):
        return self.b(checkpoint(self.part, x, use_reentrant=False)).squeeze(1)


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(800):
    x = X[(i * 16) % 320:][:16]
    y = checkpoint(m.b, torch.ones(1, 32, requires_grad=True), use_reentrant=True)
    loss = (m(x) - x.sum(1)).pow(2).mean() + 0.01 * y.pow(2).sum()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), m.runs)
