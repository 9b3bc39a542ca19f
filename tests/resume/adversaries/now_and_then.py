# Tries: a forward changes what it keeps at each 7th call only: an attribute, a list, a dict of objects, an object's attribute, a big list at once
# short: yes
# expected: exact
import torch
from torch import nn

torch.manual_seed(0)


class Statistics:
    def __init__(self):
        self.best, self.at = None, 0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls, self.scale = 0, 1.0
        self.history, self.by_name, self.much = [], {}, []
        self.statistics = Statistics()

    def forward(self, x):
        h = self.a(x).relu()
        self.calls += 1
        if self.calls % 7 == 0:
            self.scale = 1.0 + (self.calls % 5) / 10
            self.history.append((self.calls, h.detach().mean()))
            self.by_name[f"n{self.calls % 21}"] = Statistics()
            self.statistics.best, self.statistics.at = h.detach().max(), self.calls
            self.much = self.much[-300:]
        if self.calls % 35 == 0:
            self.much.extend(h.detach()[:4].flatten().tolist())
        return self.b(h * self.scale + 0.01 * sum(self.much[-9:])).squeeze(1)


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
print("final", sum(p.double().sum().item() for p in m.parameters()), len(m.history), len(m.much), m.statistics.at, sorted(m.by_name))
