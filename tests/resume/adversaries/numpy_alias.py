# Tries: one batch buffer known to numpy and to torch; a restore that swaps the storage cuts the two apart.
# short: yes
# expected: exact
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
rng = np.random.default_rng(0)
buf = np.zeros((16, 8), "float32")
xb = torch.from_numpy(buf)
data = rng.standard_normal((320, 8)).astype("float32")
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1200):
    buf[:] = data[rng.integers(0, 320, 16)]
    loss = (m(xb).squeeze(1) - xb.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
X = torch.from_numpy(data)
print("final", (m(X).squeeze(1) - X.sum(1)).pow(2).mean().item())
