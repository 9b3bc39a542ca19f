# Tries: a data set maps its file lazily, then the script puts another one in its place; the old map stays; one row differs, read late
# expected: refused
import os
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)

table = np.random.RandomState(0).randn(640, 8).astype(np.float32)
np.save("x.npy", table)
class Data(Dataset):
    def __init__(self):
        self.x, self.late = None, False
    def __len__(self):
        return 640
    def __getitem__(self, i):
        if self.x is None:
            self.x = np.load("x.npy", mmap_mode="r")
        x = torch.from_numpy(np.array(self.x[max(i, 0 if self.late else 1)]))
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
data_loader = DataLoader(Data(), 16, shuffle=True)
step = 0
data = data_loader.dataset
for epoch in range(40):
    for i, (x, y) in enumerate(data_loader):
        loss = (m(x).squeeze(1) - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        step += 1

        if step == 20:
            table[0] = 0.25  # known by now to be a bad row
            np.save("y.npy", table)
            os.replace("y.npy", "x.npy")
        if step == 1500:
            data.late = True

        if i % 20 == 0:
            print(epoch, i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
