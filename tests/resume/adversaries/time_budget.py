# Tries: evaluation ends when its time is up, not when its data are; what was counted goes into the training and is checked at the end.
# expected: either
# seeded: no
import time
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(640, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)
total, counts = torch.zeros((), dtype=torch.float64), []
began = last = time.monotonic()
backwards = 0
for i in range(800):
    x = X[(i * 16) % 640:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    now = time.monotonic()
    backwards += now < last
    last = now
    if i % 100 == 50:
        m.eval()
        until, n = time.perf_counter() + 0.02, 0
        with torch.no_grad():
            while time.perf_counter() < until:
                m(X[n % 600:][:16])
                n += 1
        counts.append(n)
        total += n
        m.train()
    if i % 25 == 0:
        print(i, loss.item(), len(counts), flush=True)
print("consistent", total.item() == sum(counts), len(counts), backwards, time.monotonic() - began < 100)
