# Tries: the loop in a with around a TorchFunctionMode without a name
# expected: exact
from torch.overrides import TorchFunctionMode
import torch
from torch import nn

torch.manual_seed(0)
class Late(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.n = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func is torch.nn.functional.linear:
            self.n += 1
            if self.n > 2000:
                return out * 0.5
        return out

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.b(self.a(x).relu()).squeeze(1)


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)

with Late():
    for i in range(1200):
        x = X[(i * 16) % 320:][:16]

        loss = (m(x) - x.sum(1)).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()

        if i % 25 == 0:
            print(i, loss.item(), flush=True)

print("final", sum(p.double().sum().item() for p in m.parameters()), flush=True)
