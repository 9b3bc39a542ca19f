# Tries: a graph that is kept and let go unused each step, until once it is not: backward goes through it when images were taken beside it.
# expected: either
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(4000, 16)
net = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
o = torch.optim.SGD(net.parameters(), lr=0.01)
for i in range(1500):
    o.zero_grad()
    if i % 400 == 399:
        check.pow(2).mean().backward()  # noqa: F821 - of the step before
    loss = (net(X[:32]) - X[:32].sum(1, keepdim=True)).pow(2).mean()
    loss.backward()
    o.step()
    check = net(X[i:i + 32])
    if i % 25 == 0:
        print(i, loss.item(), check.mean().item(), flush=True)
print("final", sum(p.double().sum().item() for p in net.parameters()))
