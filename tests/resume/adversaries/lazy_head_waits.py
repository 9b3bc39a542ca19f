# Tries: a lazy head that waits through several images, and gets its parameters in a call that is not its model's first.
# expected: either
import torch
from torch import nn
torch.manual_seed(0)
X = torch.randn(320, 8)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.late, self.n = nn.Linear(8, 32), nn.Linear(32, 1), nn.LazyLinear(1), 0
    def forward(self, x):
        self.n += 1
        h = self.a(x).relu()
        out = self.b(h)
        if self.n > 250:
            out = out + self.late(h)
        return out.squeeze(1)
m = Net()
o = torch.optim.SGD(m.parameters(), 1e-2) if False else torch.optim.SGD([*m.a.parameters(), *m.b.parameters()], 1e-2)
for i in range(500):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad(); loss.backward(); o.step()
    if i == 250:
        o.add_param_group({"params": m.late.parameters()})
    if i % 20 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
