# Tries: in loader workers: a set whose one number goes up
# short: yes
# expected: either

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Data(Dataset):
    def __init__(self):
        self.x = torch.randn(320, 8)
        self.s = {0}

    def __len__(self):
        return 16000

    def __getitem__(self, i):
        n = self.s.pop()
        self.s.add(n + 1)
        return self.x[i % 320] * (1.0 if n < 6000 else 0.5)


m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i, x in enumerate(DataLoader(Data(), batch_size=16, shuffle=True, num_workers=2)):
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), flush=True)
