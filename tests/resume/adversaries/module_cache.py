# Tries: a cache inside the module, filled by forward and used many steps later.
# short: yes
# expected: either
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 32)
        self.b = nn.Linear(32, 1)
        self.cache = {}

    def forward(self, x, key):
        h = torch.relu(self.a(x))
        old = self.cache.get(key, 0.0)
        self.cache[key] = 0.5 * old + 0.5 * h.detach().mean(0)
        return self.b(h + 0.1 * self.cache[key]).squeeze(1)


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x, f"k{i % 37}") - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), len(m.cache), flush=True)
print("final", sum(v.double().sum().item() for v in m.cache.values()))
