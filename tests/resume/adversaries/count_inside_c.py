# Tries: a count that forward() keeps in Python's garbage collector, in C, where no walk comes to; it scales each output. Nothing but lines is printed before.
# expected: refused
import gc
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x):
        n = gc.get_threshold()[2]
        gc.set_threshold(700, 10, n + 1)
        return self.b(self.a(x).relu()).squeeze(1) * (1 + n % 1009 * 1e-4)


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(2000):
    print(i, flush=True)
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
print("final", sum(p.double().sum().item() for p in m.parameters()))
