# Tries: process-wide switches turned in the middle: default dtype, deterministic mode, grad mode, threads, print options.
# expected: either
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1200):
    if i == 200:
        torch.use_deterministic_algorithms(True)
    if i == 300:
        torch.set_default_dtype(torch.float64)
    if i == 350:
        torch.set_printoptions(precision=9)
    if i == 400:
        torch.set_flush_denormal(True)
    if i == 500:
        torch.set_grad_enabled(False)
    if i == 600:
        torch.set_num_threads(2)
    if i == 700:
        torch.set_float32_matmul_precision("medium")
    if i == 800:
        torch.autograd.set_detect_anomaly(True)
    x = X[(i * 16) % 320:][:16] + torch.full((8,), 1e-3).float()
    with torch.enable_grad():
        loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean() + torch.tensor(1 / 3).float()
        o.zero_grad()
        loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.detach(), m(x).requires_grad, flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), torch.get_num_threads(), torch.get_default_dtype())
