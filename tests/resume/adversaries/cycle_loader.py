# Tries: itertools.cycle keeps the batches of its first pass in a list inside a C object.
# short: yes
# expected: either
import itertools
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
X = torch.randn(320, 8)
loader = DataLoader(TensorDataset(X, X.sum(1)), 16, shuffle=True)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i, (x, y) in enumerate(itertools.cycle(loader)):
    if i == 1200:
        break
    loss = (m(x).squeeze(1) - y).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", (m(X).squeeze(1) - X.sum(1)).pow(2).mean().item())
