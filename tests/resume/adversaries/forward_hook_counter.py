# Tries: a forward hook counts and appends floats; the count chooses the loss, the list is printed at the end.
# short: yes
# expected: either
import torch
from torch import nn

torch.manual_seed(0)
calls, means = [0], []


def hook(module, args, out):
    calls[0] += 1
    if calls[0] % 10 == 0:
        means.append(out.mean().item())


X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
m[0].register_forward_hook(hook)
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    if i % 3 == 0:
        m(x)
    diff = m(x).squeeze(1) - x.sum(1)
    loss = diff.abs().mean() if calls[0] % 4 == 0 else diff.pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", calls, sum(means), len(means))
