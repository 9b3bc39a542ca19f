# Tries: a ctypes array is the memory behind a tensor and is written through ctypes only.
# expected: either
import ctypes
import torch
from torch import nn

torch.manual_seed(0)
cells = (ctypes.c_float * 8)(*[1.0] * 8)
gate = torch.frombuffer(cells, dtype=torch.float32)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1200):
    x = X[(i * 16) % 320:][:16] * gate
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    ctypes.memmove(ctypes.addressof(cells), m[2].weight.data_ptr(), 4)
    cells[1 + i % 7] *= 0.9995
    if i % 25 == 0:
        print(i, loss.item(), list(cells)[:3], flush=True)
print("final", list(cells))
