# Tries: a data set opens its file lazily and keeps it under two names, one of a helper
# expected: exact
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)

import struct
with open("x.bin", "wb") as f:
    for number in range(640 * 8):
        f.write(struct.pack("f", (number * 7919 % 1000) / 500 - 1))
class Reader:
    f = None
reader = Reader()
class Data(Dataset):
    def __init__(self):
        self.f = None
    def __len__(self):
        return 640
    def __getitem__(self, i):
        if self.f is None:
            self.f = reader.f = open("x.bin", "rb")
        self.f.seek(i * 32)
        reader.f.seek(0, 1)
        x = torch.frombuffer(bytearray(reader.f.read(32)), dtype=torch.float32)
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

for epoch in range(40):
    for i, (x, y) in enumerate(data_loader):
        loss = (m(x).squeeze(1) - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        step += 1

        if i % 20 == 0:
            print(epoch, i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), data_loader.dataset.f is reader.f)
