# Tries: a forward moves a window of one size over a buffer
# expected: either
import torch
from torch import nn

torch.manual_seed(0)

BUF = memoryview(bytes(range(256)) * 8)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0
        self.window = BUF[:32]
    def forward(self, x):
        self.calls += 1
        if self.calls in (37, 38):
            self.window = BUF[self.calls:self.calls + 32]
        if not self.training:
            x = x + self.window[0] / 256
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
m.eval()
print("final", sum(p.double().sum().item() for p in m.parameters()), m(X).double().sum().item(), list(m.window[:4]))
