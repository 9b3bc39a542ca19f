# Tries: a dataset that counts its own calls in each worker and makes samples harder by that count.
# expected: either
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Curriculum(Dataset):
    def __init__(self):
        self.x = torch.randn(2400, 8)
        self.served = 0

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        self.served += 1
        return self.x[i] * (1 + self.served / 1000), self.x[i].sum()


loader = DataLoader(Curriculum(), 16, shuffle=True, num_workers=2, persistent_workers=True)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-3)
for epoch in range(7):
    for i, (x, y) in enumerate(loader):
        loss = (m(x).squeeze(1) - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        if i % 25 == 0:
            print(epoch, i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
