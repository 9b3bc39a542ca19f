# Tries: two training loaders in step, a validation loader opened inside them, a loader made anew with another batch size, iterators dropped half way.
# expected: exact
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset, WeightedRandomSampler

torch.manual_seed(0)
X = torch.randn(640, 8)
data = TensorDataset(X, X.sum(1))
g = torch.Generator().manual_seed(3)
a = DataLoader(Subset(data, range(0, 500)), 10, shuffle=True, generator=g)
b = DataLoader(ConcatDataset([Subset(data, range(500, 600)), Subset(data, range(0, 50))]), 5, sampler=WeightedRandomSampler(torch.rand(150), 200, generator=g), num_workers=1)
val = DataLoader(Subset(data, range(600, 640)), 8)
m = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.1), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
n = 0
for epoch in range(14):
    half = iter(DataLoader(data, 4 + epoch, shuffle=True))
    for (x, y), (v, w) in zip(a, b):
        loss = (m(x).squeeze(1) - y).pow(2).mean() + 0.3 * (m(v).squeeze(1) - w).abs().mean()
        if n % 7 == 0:
            h, k = next(half)
            loss = loss + 0.1 * (m(h).squeeze(1) - k).abs().mean()
        o.zero_grad()
        loss.backward()
        o.step()
        n += 1
        if n % 25 == 0:
            m.eval()
            score = sum((m(p).squeeze(1) - q).pow(2).mean().item() for p, q in val)
            m.train()
            print(epoch, n, loss.item(), score, flush=True)
            if score < 2.5 and epoch % 2:
                break
print("final", n, sum(p.double().sum().item() for p in m.parameters()))
