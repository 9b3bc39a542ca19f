# Tries: a helper program keeps a counter in a file and prints a value that the training takes.
# expected: either
# leftovers: yes
import subprocess
import sys
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)
HELPER = "import pathlib; p = pathlib.Path('count'); n = int(p.read_text()) + 1 if p.exists() else 1; p.write_text(str(n)); print(0.01 / n)"
for i in range(1000):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 200 == 100:
        done = subprocess.run([sys.executable, "-S", "-c", HELPER], capture_output=True, text=True, check=True)
        o.param_groups[0]["lr"] = float(done.stdout)
    if i % 25 == 0:
        print(i, loss.item(), o.param_groups[0]["lr"], flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
