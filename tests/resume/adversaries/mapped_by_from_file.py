# Tries: a file mapped by torch.from_file now and then
# expected: either
import torch
from torch import nn

torch.manual_seed(0)
open("ring.bin", "wb").write(bytes(4 * 32 * 200))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x):
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
    if i % 10 == 3:
        t = torch.from_file("ring.bin", shared=True, size=32 * 200)
        t[32 * (i // 10):][:32].copy_(m.a.bias.detach())
        del t
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), None)
