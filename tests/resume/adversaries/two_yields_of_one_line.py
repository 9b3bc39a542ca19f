# Tries: a generator that yields twice on a line, asked now and then in forward
# expected: either
import torch
from torch import nn

torch.manual_seed(0)

def signs():
    while True: yield 1.0; yield -1.0
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0
        self.signs = signs()
        self.sign = 0.0
        next(self.signs)
    def forward(self, x):
        self.calls += 1
        if self.calls in (37, 600, 1200):
            self.sign = next(self.signs)
        x = x + 0.1 * self.sign
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

print("final", sum(p.double().sum().item() for p in m.parameters()), m.sign)
