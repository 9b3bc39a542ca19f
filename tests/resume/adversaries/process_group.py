# Tries: a process group of one (gloo) and an averaged gradient through it.
# expected: refused
import os
import torch
import torch.distributed as dist
from torch import nn

torch.manual_seed(0)
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
dist.init_process_group("gloo", init_method=f"file://{os.path.abspath('store')}-{os.getpid()}", rank=0, world_size=1)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(900):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    for p in m.parameters():
        dist.all_reduce(p.grad)
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
dist.destroy_process_group()
for name in os.listdir("."):
    if name.startswith("store"):
        os.remove(name)
print("final", sum(p.double().sum().item() for p in m.parameters()))
