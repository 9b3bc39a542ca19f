# Tries: worker_init_fn seeds a global generator in each worker; get_worker_info is cached; both live in the workers only.
# expected: either
import random
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

torch.manual_seed(0)
mine = None


def init(worker):
    global mine
    mine = (np.random.default_rng(100 + worker), get_worker_info())
    random.seed(worker)


class Data(Dataset):
    def __init__(self):
        self.x = torch.randn(1600, 8)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        rng, info = mine
        x = self.x[i] + float(rng.standard_normal()) * 0.1 + info.id * 0.01 + random.random() * 0.1
        return x + torch.randn(8) * 0.05, self.x[i].sum()


loader = DataLoader(Data(), 16, shuffle=True, num_workers=2, worker_init_fn=init, persistent_workers=True)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for epoch in range(9):
    for i, (x, y) in enumerate(loader):
        loss = (m(x).squeeze(1) - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        if i % 20 == 0:
            print(epoch, i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
