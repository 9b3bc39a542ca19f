# Tries: the loop is text that is compiled at run time, in a namespace that no module owns.
# expected: either

BODY = """
import torch
from torch import nn
torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
ema = torch.zeros(())
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad(); loss.backward(); o.step()
    ema = 0.98 * ema + 0.02 * loss.detach()
    if i % 25 == 0:
        print(i, loss.item(), ema.item(), flush=True)
"""
space = {"__name__": "nowhere"}
exec(compile(BODY, "<made up>", "exec"), space)
print("final", sum(p.double().sum().item() for p in space["m"].parameters()))
