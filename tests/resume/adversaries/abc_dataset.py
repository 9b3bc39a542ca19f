# Tries: a data set with ABCMeta counts what it gave out in its class
# expected: exact
from abc import ABC
from torch.utils.data import Dataset, DataLoader
import torch
from torch import nn

torch.manual_seed(0)
class Base(Dataset, ABC):
    given = 0

    def __getitem__(self, i):
        Base.given += 1
        return self.x[i] * (1.0 if Base.given < 12000 else 0.5)

    def __len__(self):
        return len(self.x)


class Data(Base):
    def __init__(self):
        self.x = torch.randn(320, 8)

loader = DataLoader(Data(), batch_size=16, shuffle=True)
it = iter(loader)

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

for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    x = next(it, None)
    if x is None:
        it = iter(loader)
        x = next(it)
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()

    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print(Base.given)
print("final", sum(p.double().sum().item() for p in m.parameters()), flush=True)
