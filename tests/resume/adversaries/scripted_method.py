# Tries: a scripted module counts in C++; only its method hangs on one of Python's own modules, where no walk comes to. It is read at the end only.
# expected: refused
import statistics
import torch
from torch import nn

torch.manual_seed(0)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n += 1
        return x * self.n


statistics.counted = torch.jit.script(Counter())._c._get_method("forward")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x):
        statistics.counted(x)
        return self.b(self.a(x).relu()).squeeze(1)


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
print("final", sum(p.double().sum().item() for p in m.parameters()), statistics.counted(torch.ones(1)).item())
