# Tries: torch.compile keeps what it learnt about shapes in the process; a new process starts without it.
# expected: refused
# wait: 60
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(1000, 16)
m = torch.compile(nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 1)), backend="eager")
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(900):
    n = 16 if i < 40 else 33 if i < 60 else 57
    x = X[(i * 16) % 900:][:n]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
