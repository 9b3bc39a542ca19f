# Tries: set-up prepares its samples in a pool of processes, which note what they did in a file
# expected: either
import torch
from torch import nn
import multiprocessing as mp
torch.manual_seed(0)

def prepare(k):
    with open("prepared.txt", "a") as f:
        f.write(f"{k}\n")
    return k * 0.001
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1

        return self.b(self.a(x).relu()).squeeze(1)


X = torch.randn(320, 8)
with mp.get_context("fork").Pool(1) as pool:
    shift = pool.map(prepare, range(16))
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1600):
    x = X[(i * 16) % 320:][:16] + shift[i % 16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()

    if i % 25 == 0:
        print(i, loss.item(), flush=True)
n = len(open("prepared.txt").readlines())
print("final", sum(p.double().sum().item() for p in m.parameters()), n)
