# Tries: Adam, then a few long steps of LBFGS, as networks for differential equations are trained; the kill often comes within a step, also the first one.
# expected: exact
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
y = X.sum(1).sin()
m = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
adam = torch.optim.Adam(m.parameters(), 1e-3)
for i in range(120):
    adam.zero_grad()
    loss = (m(X).squeeze(1) - y).pow(2).mean()
    loss.backward()
    adam.step()
    if i % 20 == 0:
        print("adam", i, loss.item(), flush=True)
o = torch.optim.LBFGS(m.parameters(), lr=0.1, max_iter=400, max_eval=500, tolerance_grad=0, tolerance_change=0, history_size=20)
calls = 0


def closure():
    global calls
    calls += 1
    o.zero_grad()
    loss = (m(X).squeeze(1) - y).pow(2).mean()
    loss.backward()
    if calls % 25 == 0:
        print("lbfgs", calls, loss.item(), flush=True)
    return loss


for epoch in range(3):
    print("step", epoch, o.step(closure).item(), calls, flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
