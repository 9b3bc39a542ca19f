# Tries: a shared-memory tensor is the dial by which the main process steers the augmentation in its workers.
# expected: either
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
dial = torch.zeros(1).share_memory_()


class Data(Dataset):
    def __init__(self):
        self.x = torch.randn(3200, 8)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] * (1 + dial[0]), self.x[i].sum()


loader = DataLoader(Data(), 16, shuffle=True, num_workers=1, prefetch_factor=2)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for epoch in range(5):
    dial.fill_(epoch * 0.1)
    for i, (x, y) in enumerate(loader):
        loss = (m(x).squeeze(1) - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        if i % 25 == 0:
            print(epoch, i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), dial.item())
