# Tries: GradScaler with unscale, clip, step and update on lines of their own, so that an image may fall between them.
# short: yes
# expected: either
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.AdamW(m.parameters(), 1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=150)
for i in range(1000):
    x = X[(i * 16) % 320:][:16]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    if i in (300, 501):
        loss = loss * 1e36
    o.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(o)
    nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    scaler.step(o)
    scaler.update()
    if i % 25 == 0:
        print(i, loss.item(), scaler.get_scale(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), scaler.get_scale())
