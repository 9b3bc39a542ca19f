# Tries: an object of a class of its own that a forward makes
# expected: exact

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Data(Dataset):
    def __init__(self):
        self.x = torch.randn(640, 8)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.x[i].sum()


class Memory:
    def __init__(self, size):
        self.scale = 1.0 + size / 100


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.memory = nn.Linear(8, 32), nn.Linear(32, 1), None

    def forward(self, x):
        if self.memory is None:
            self.memory = Memory(len(x))
        return self.b(self.a(x).relu()) * self.memory.scale


m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
loader = DataLoader(Data(), 16, shuffle=True)
for epoch in range(40):
    for i, (x, y) in enumerate(loader):
        loss = (m(x).squeeze(1) - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        if i % 25 == 0:
            print(epoch, i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
