# Tries: an object that a forward makes holds a leaf of its own, whose gradient is gathered over three backwards; images fall between them
# expected: either
import collections

import torch
from torch import nn

torch.manual_seed(0)


class Prompt:
    def __init__(self, width):
        self.p = torch.zeros(width, requires_grad=True)
        self.kept = collections.deque(maxlen=3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.prompt = None

    def forward(self, x):
        h = self.a(x).relu()
        if self.prompt is None:
            self.prompt = Prompt(h.shape[1])
        prompt = self.prompt
        prompt.kept.append(len(x))
        if len(prompt.kept) == 3:
            prompt.kept.clear()
            with torch.no_grad():
                prompt.p -= 1e-2 * prompt.p.grad
                prompt.p.grad.zero_()
        return self.b(h + self.prompt.p).squeeze(1)


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), m.prompt.p.sum().item())
