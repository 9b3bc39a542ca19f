# Tries: a file is made by numpy.memmap in set-up, and read by another one in training
# expected: exact
import numpy as np

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Data(Dataset):
    def __init__(self):
        made = np.memmap("cache.dat", dtype=np.float32, mode="w+", shape=(640, 8))
        made[:] = np.random.RandomState(0).randn(640, 8)
        made.flush()
        del made
        self.x = np.memmap("cache.dat", dtype=np.float32, mode="r", shape=(640, 8))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = torch.from_numpy(np.array(self.x[i]))
        return x, x.sum()


m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
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
