# Tries: a module beside the script changes while it trains (here by the script itself), so the second life would import something else.
# expected: either
# leftovers: yes
import pathlib
import sys

sys.path.insert(0, ".")
if not pathlib.Path("recipe.py").exists():
    pathlib.Path("recipe.py").write_text("RATE = 1e-2\n")
import torch
from torch import nn
import recipe

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), recipe.RATE)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i == 5:
        pathlib.Path("recipe.py").write_text("RATE = 2e-2\n")
    if i % 25 == 0:
        print(i, loss.item(), o.param_groups[0]["lr"], flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
