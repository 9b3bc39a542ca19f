# Tries: a transform object with a generator of its own inside worker processes, one level below the dataset.
# short: yes
# expected: either
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Jitter:
    def __init__(self):
        self.rng = np.random.default_rng(3)

    def __call__(self, x):
        return x + self.rng.standard_normal(8).astype("float32") * 0.3


class Compose:
    def __init__(self, parts):
        self.parts = parts

    def __call__(self, x):
        for part in self.parts:
            x = part(x)
        return x


class Data(Dataset):
    def __init__(self, transform):
        self.x = np.random.RandomState(0).randn(4800, 8).astype("float32")
        self.transform = transform

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.transform(self.x[i]), self.x[i].sum()


loader = DataLoader(Data(Compose([Jitter()])), 16, shuffle=True, num_workers=2)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
i = 0
for epoch in range(3):
    for x, y in loader:
        loss = (m(x).squeeze(1) - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        if i % 25 == 0:
            print(i, loss.item(), flush=True)
        i += 1
print("final", sum(p.sum().item() for p in m.parameters()))
