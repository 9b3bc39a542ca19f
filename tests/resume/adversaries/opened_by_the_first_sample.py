# Tries: a data set opens its file when the first sample is asked for, and reads on from where it was every second time
# expected: exact
import struct

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)

with open("x.bin", "wb") as f:
    for number in range(640 * 8):
        f.write(struct.pack("f", (number * 7919 % 1000) / 500 - 1))


class Data(Dataset):
    def __init__(self):
        self.f = None

    def __len__(self):
        return 640

    def __getitem__(self, i):
        if self.f is None:
            self.f = open("x.bin", "rb")
        if i % 2 or self.f.tell() > 600 * 32:
            self.f.seek(i * 32)
        x = torch.frombuffer(bytearray(self.f.read(32)), dtype=torch.float32)
        return x, x.sum()


m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
loader = DataLoader(Data(), 16, shuffle=True)
for epoch in range(40):
    for i, (x, y) in enumerate(loader):
        loss = (m(x).squeeze(1) - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        if i % 25 == 0:
            print(epoch, i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
