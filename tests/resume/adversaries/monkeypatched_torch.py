# Tries: the script replaces parts of torch by its own wrappers that keep state.
# expected: either
import torch
from torch import nn

torch.manual_seed(0)
counts = {"backward": 0, "step": 0, "randn": 0, "item": 0}
plain_backward, plain_randn, plain_item = torch.Tensor.backward, torch.randn, torch.Tensor.item


def backward(self, *a, **k):
    counts["backward"] += 1
    return plain_backward(self * (1 + 0.01 * (counts["backward"] % 3)), *a, **k)


def randn(*a, **k):
    counts["randn"] += 1
    return plain_randn(*a, **k) * (1 + 0.1 * (counts["randn"] % 2))


def item(self):
    counts["item"] += 1
    return plain_item(self) + counts["item"]


torch.Tensor.backward, torch.randn, torch.Tensor.item = backward, randn, item
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1200):
    x = X[(i * 16) % 320:][:16] + 0.01 * torch.randn(8)
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), counts)
