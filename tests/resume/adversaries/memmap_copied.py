# Tries: batches that are copied out of a mapped file, as one reads tokens and features: the tensor keeps an array of numpy's own class for such files, to which no name leads.
# expected: exact
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
np.random.RandomState(0).randn(280 * 8).astype("float32").tofile("features.bin")
features = np.memmap("features.bin", dtype=np.float32, mode="r", shape=(280, 8))
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1600):
    at = int(torch.randint(0, 264, (1,)))
    x = torch.from_numpy(features[at:at + 16].copy())
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 40 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), x.sum().item())
