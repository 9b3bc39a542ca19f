# Tries: once-only warnings, a log file read back to decide, os.environ and sys.flags as counters.
# expected: either
# leftovers: yes
import logging
import os
import sys
import warnings
import torch
from torch import nn

torch.manual_seed(0)
logging.basicConfig(filename="train.log", level=logging.INFO, format="%(message)s")
warnings.simplefilter("default")
shown = []
warnings.showwarning = lambda *a, **k: shown.append(str(a[0]))
os.environ["GOOD_STEPS"] = "0"
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)
for i in range(1000):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if loss < 1:
        os.environ["GOOD_STEPS"] = str(int(os.environ["GOOD_STEPS"]) + 1)
    if i % 7 == 0:
        warnings.warn(f"step {i % 70}")
    if i % 10 == 0:
        logging.info("%d %r %s", i, loss.item(), os.environ["GOOD_STEPS"])
        lines = open("train.log").read().splitlines()
        o.param_groups[0]["lr"] = 1e-2 / (1 + 0.01 * len(lines) + 0.01 * len(shown) + 0.001 * int(os.environ["GOOD_STEPS"]))
    if i % 25 == 0:
        print(i, loss.item(), len(lines), len(shown), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), len(shown), os.environ["GOOD_STEPS"], file=sys.stdout)
