# Tries: a data set, read in this process, makes an index of objects of its own at the first sample
# expected: exact
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Row:
    def __init__(self, n, scale):
        self.n, self.scale, self.asked = n, scale, 0


class Data(Dataset):
    def __init__(self):
        self.x = torch.randn(320, 8)
        self.rows = None

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        if self.rows is None:
            self.rows = [Row(n, 1 + n / 320) for n in range(320)]
        row = self.rows[i]
        row.asked += 1
        return self.x[i] * row.scale, self.x[i].sum() + 0.01 * row.asked


m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
data = Data()
for epoch in range(60):
    for i, (x, y) in enumerate(DataLoader(data, 16, shuffle=True)):
        loss = (m(x).squeeze(1) - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        if i % 10 == 0:
            print(epoch, i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), sum(row.asked for row in data.rows))
