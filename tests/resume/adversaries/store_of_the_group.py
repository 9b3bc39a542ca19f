# Tries: a count that forward() keeps in the store of a process group of one, in C++; it is read at the end only.
# expected: refused
import os
import torch
import torch.distributed as dist
from torch import nn

torch.manual_seed(0)
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x):
        dist.distributed_c10d._get_default_store().add("calls", 1)
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
print("final", sum(p.double().sum().item() for p in m.parameters()), dist.distributed_c10d._get_default_store().add("calls", 0))
