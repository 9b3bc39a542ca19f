# Tries: the number of a file that was written and closed stays in a variable, as where each save goes to a temporary file first, beside a log that is open.
# expected: exact
import os
import tempfile

import torch
from torch import nn

torch.manual_seed(0)
log = open("train.log", "w")
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 40 == 0:
        fd, name = tempfile.mkstemp(dir=".", suffix=".tmp")
        with os.fdopen(fd, "wb") as f:
            torch.save({"model": m.state_dict(), "step": i}, f)
        os.replace(name, "last.pt")
        name = ""
        print(i, loss.item(), file=log, flush=True)
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
