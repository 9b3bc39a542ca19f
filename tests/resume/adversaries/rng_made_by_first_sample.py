# Tries: a data set makes a random.Random and a numpy Generator of its own at the first sample (as for workers)
# expected: exact
import random
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)

class Data(Dataset):
    def __init__(self):
        self.x, self.rng, self.coin = torch.randn(640, 8), None, None
    def __len__(self):
        return 640
    def __getitem__(self, i):
        if self.rng is None:
            self.rng, self.coin = np.random.default_rng(5), random.Random(6)
        x = self.x[i] + 0.1 * torch.from_numpy(self.rng.standard_normal(8).astype(np.float32))
        return (-x if self.coin.random() < 0.2 else x), x.sum()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.n = nn.Linear(8, 32), nn.Linear(32, 1), 0
    def forward(self, x):
        self.n += 1
        return self.b(self.a(x).relu())

m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
data_loader = DataLoader(Data(), 16, shuffle=True)
step = 0

for epoch in range(40):
    for i, (x, y) in enumerate(data_loader):
        loss = (m(x).squeeze(1) - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        step += 1

        if i % 20 == 0:
            print(epoch, i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
