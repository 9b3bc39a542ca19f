# Tries: checkpoints into one open tar.xz
# expected: either
import io
import tarfile

import torch
from torch import nn

torch.manual_seed(0)



class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x):
        return self.b(self.a(x).relu()).squeeze(1)


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
tar = tarfile.open("c.tar.xz", "w:xz")
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 50 == 5:
        b = io.BytesIO()
        torch.save(m.state_dict(), b)
        info = tarfile.TarInfo(f"c{i}.pt")
        info.size = b.tell()
        b.seek(0)
        tar.addfile(info, b)
        del b, info
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), tar.close())
