# Tries: modules written and imported in the middle, each changing the training when it is imported.
# expected: either
import importlib
import pathlib
import sys
import torch
from torch import nn

torch.manual_seed(0)
sys.path.insert(0, ".")
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)
factor = torch.ones(())
for i in range(1000):
    if i % 200 == 60:
        pathlib.Path(f"extra{i}.py").write_text(
            f"import torch, sys\nmain = sys.modules['__main__']\nSCALE = torch.rand(()) * 0.1 + 0.9\nmain.factor = main.factor * SCALE\nLR = {1e-2 / (1 + i / 500)}\n")
        importlib.invalidate_caches()
        extra = importlib.import_module(f"extra{i}")
        o.param_groups[0]["lr"] = extra.LR
    x = X[(i * 16) % 320:][:16] * factor
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), factor.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), sorted(n for n in sys.modules if n.startswith("extra")))
