# Tries: parameters whose storage is a file: np.memmap and torch.from_file, written by the optimizer in place.
# expected: either
# leftovers: yes
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
disk = np.memmap("weight.bin", dtype="float32", mode="w+", shape=(32, 8))
disk[:] = m[0].weight.detach().numpy()
m[0].weight.data = torch.from_numpy(disk)
shared = torch.from_file("bias.bin", shared=True, size=32)
shared.copy_(m[0].bias.detach())
m[0].bias.data = shared
o = torch.optim.SGD(m.parameters(), 1e-2)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 100 == 99:
        disk.flush()
        disk *= 0.99
    if i % 25 == 0:
        print(i, loss.item(), float(disk.sum()), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
