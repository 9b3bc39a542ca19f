# Tries: a table on disk that is changed in place through 'r+', seek, tell, truncate and an mmap.
# expected: either
import mmap
import struct
import torch
from torch import nn

torch.manual_seed(0)
with open("table.bin", "wb") as f:
    f.write(bytes(8 * 64))
table = open("table.bin", "r+b")
mapped_file = open("map.bin", "w+b")
mapped_file.truncate(64)
mapped = mmap.mmap(mapped_file.fileno(), 64)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    at = (i * 7 % 64) * 8
    table.seek(at)
    old = struct.unpack("d", table.read(8))[0]
    table.seek(at)
    table.write(struct.pack("d", 0.5 * old + 0.5 * loss.item()))
    mapped[i % 64] = (mapped[i % 64] + int(loss.item() * 100)) % 256
    o.param_groups[0]["lr"] = 1e-2 / (1 + 0.1 * old + 0.001 * mapped[(i * 5) % 64])
    if i == 700:
        table.truncate(8 * 32)
        table.seek(0, 2)
        table.write(bytes(8 * 32))
    if i % 25 == 0:
        print(i, loss.item(), old, flush=True)
table.close()
mapped.flush()
print("final", sum(p.double().sum().item() for p in m.parameters()))
