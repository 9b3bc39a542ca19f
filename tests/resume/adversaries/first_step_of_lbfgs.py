# Tries: LBFGS whose one step takes long, with hundreds of closures; the kill comes within the first step.
# expected: either
# every: 2s
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
y = X.sum(1).sin()
m = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
o = torch.optim.LBFGS(m.parameters(), lr=0.05, max_iter=1500, max_eval=2000, tolerance_grad=0, tolerance_change=0, history_size=20)
calls = 0


def closure():
    global calls
    calls += 1
    o.zero_grad()
    loss = (m(X).squeeze(1) - y).pow(2).mean()
    loss.backward()
    if calls % 25 == 0:
        print(calls, loss.item(), flush=True)
    return loss


for epoch in range(2):
    print("step", epoch, o.step(closure).item(), calls, flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
