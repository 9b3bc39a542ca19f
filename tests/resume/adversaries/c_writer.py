# Tries: a log written by os.write on a descriptor, read back by os.pread.
# short: yes
# expected: either
# leftovers: yes
import os
import struct
import torch
from torch import nn

torch.manual_seed(0)
fd = os.open("loss.bin", os.O_RDWR | os.O_CREAT | os.O_APPEND)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 10 == 0:
        os.write(fd, struct.pack("d", loss.item()))
        size = os.fstat(fd).st_size
        back = struct.unpack("d", os.pread(fd, 8, max(0, size - 80)))[0]
        o.param_groups[0]["lr"] = 1e-2 if back > loss.item() else 5e-3
    if i % 25 == 0:
        print(i, loss.item(), size, flush=True)
os.close(fd)
print("final", sum(p.double().sum().item() for p in m.parameters()))
