# Tries: a data set swaps objects in a set
# expected: either
from torch.utils.data import Dataset, DataLoader
import torch
from torch import nn

torch.manual_seed(0)
class P:
    def __init__(self, n):
        self.n = n


pool, now = [P(0), P(1)], set()
now.add(pool[0])


class D(Dataset):
    def __init__(self):
        self.k = 0

    def __len__(self):
        return 64

    def __getitem__(self, i):
        self.k += 1
        if self.k == 70:
            now.clear()
            now.add(pool[1])
        return torch.full((8,), i / 64)


loader = DataLoader(D(), 16)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x):
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
    if i % 20 == 3:
        s = sum(b.sum().item() for b in loader)
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), [p.n for p in now])
