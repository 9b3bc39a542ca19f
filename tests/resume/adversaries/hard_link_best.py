# Tries: the best checkpoint is a hard link to the last one, which is written over in place
# expected: refused
import os
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

        if step % 2 == 0:
            with open("last.txt", "w") as f:
                f.write(f"{step} {loss.item()}\n" * 3)
            if step == 50:
                if os.path.exists("best.txt"):
                    os.remove("best.txt")
                os.link("last.txt", "best.txt")

        if i % 20 == 0:
            print(epoch, i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), open("best.txt").read(), open("last.txt").read())
