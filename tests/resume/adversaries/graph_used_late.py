# Tries: a graph that is kept and let go unused each step, until one is kept for long and used in the end: images were taken beside it.
# expected: either
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(4000, 16)
net = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
judge = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 1))
o = torch.optim.SGD(net.parameters(), lr=0.01)
o2 = torch.optim.SGD(judge.parameters(), lr=0.5)
for i in range(1500):
    o.zero_grad()
    if i % 500 == 499:
        o2.zero_grad()
        check.pow(2).mean().backward()  # noqa: F821 - of 250 steps before
        o2.step()
    loss = (net(X[:32]) - X[:32].sum(1, keepdim=True)).pow(2).mean()
    loss.backward()
    o.step()
    if i % 500 < 250:
        check = judge(X[i:i + 32])
    if i % 25 == 0:
        print(i, loss.item(), check.mean().item(), flush=True)
print("final", sum(p.double().sum().item() for p in [*net.parameters(), *judge.parameters()]))
