# Tries: a table is mapped; later the script writes a shorter one under the same name and maps that; the first map stays in a variable, unused
# expected: exact
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)

np.save("x.npy", np.random.RandomState(0).randn(6400, 8).astype(np.float32))
class Data(Dataset):
    def __init__(self):
        self.x = np.load("x.npy", mmap_mode="r")
    def __len__(self):
        return 640
    def __getitem__(self, i):
        x = torch.from_numpy(np.array(self.x[i]))
        return x, x.sum()
data = Data()
first = data.x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.n = nn.Linear(8, 32), nn.Linear(32, 1), 0
    def forward(self, x):
        self.n += 1
        return self.b(self.a(x).relu())

m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
data_loader = DataLoader(data, 16)
step = 0

for epoch in range(40):
    for i, (x, y) in enumerate(data_loader):
        loss = (m(x).squeeze(1) - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        step += 1

        if step == 25:
            short = np.array(first[:640])
            np.save("x.npy", short)
            data.x = np.load("x.npy", mmap_mode="r")

        if i % 20 == 0:
            print(epoch, i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), first.shape)
