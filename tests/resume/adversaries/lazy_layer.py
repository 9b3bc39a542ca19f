# Tries: a layer that the first forward makes, from the size of what it is given
# expected: exact
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 32)
        self.head = None

    def forward(self, x):
        x = self.a(x).relu()
        if self.head is None:
            self.head = nn.Linear(x.shape[1], 1)
        return self.head(x).squeeze(1)


X = torch.randn(320, 8)
m = Net()
with torch.no_grad():
    m(X[:1])
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
