# Tries: a forward reads the next line of a mapped file now and then; the place is in the map
# expected: either
import torch
from torch import nn
import mmap
torch.manual_seed(0)

with open("noise.txt", "w") as f:
    f.writelines(f"{k * 0.01:.4f} line\n" for k in range(1000))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0
        self.file = open("noise.txt", "rb")
        self.map = mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_READ)
        self.noise = 0.0
    def forward(self, x):
        self.calls += 1
        if self.calls in (37, 600, 1200):
            self.noise = float(self.map.readline().split()[0])
        x = x + self.noise
        return self.b(self.a(x).relu()).squeeze(1)


X = torch.randn(320, 8)

m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()

    if i % 25 == 0:
        print(i, loss.item(), flush=True)

print("final", sum(p.double().sum().item() for p in m.parameters()), m.noise)
