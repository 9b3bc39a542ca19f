# Tries: workers keep drawn samples on disk: torch.save beside, then moved to its place
# leftovers
# expected: refused
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)

os.makedirs("cache", exist_ok=True)
class Data(Dataset):
    def __init__(self):
        self.x = torch.randn(9600, 8)
    def __len__(self):
        return len(self.x)
    def __getitem__(self, i):
        path = f"cache/{i % 4800}.pt"
        if os.path.exists(path):
            x = torch.load(path)
        else:
            x = self.x[i % 4800] + 0.1 * torch.randn(8)
            torch.save(x, path + ".tmp")
            os.replace(path + ".tmp", path)
        return x, x.sum()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.n = nn.Linear(8, 32), nn.Linear(32, 1), 0
    def forward(self, x):
        self.n += 1
        return self.b(self.a(x).relu())

m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
data_loader = DataLoader(Data(), 16, num_workers=1)
step = 0

for epoch in range(1):
    for i, (x, y) in enumerate(data_loader):
        loss = (m(x).squeeze(1) - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        step += 1

        if i % 10 == 0:
            print(epoch, i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
