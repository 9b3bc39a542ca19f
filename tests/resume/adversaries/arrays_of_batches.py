# Tries: arrays of batches and outputs stay behind as loop variables; one is written through the tensor late
# expected: exact
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
loader = DataLoader(TensorDataset(X, X.sum(1)), batch_size=16, shuffle=True)
total = 0.0
for epoch in range(80):
    for x, y in loader:
        xn, yn = x.numpy(), y.numpy()
        out = m(x)[:, 0]
        loss = (out - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        pred = out.detach().numpy()
        total += float(np.abs(pred - yn).mean()) + float(xn[0, 0])
    print(epoch, loss.item(), total, flush=True)
    x.add_(1)
    total += float(xn.sum())
print("final", sum(p.double().sum().item() for p in m.parameters()), total)
