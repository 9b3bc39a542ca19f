# Tries: the graph of the next step is always alive (pipelined forward), so no point is without one.
# short: yes
# expected: either
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(4000, 16)
net = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
head = nn.Linear(1, 1)
o = torch.optim.SGD(head.parameters(), lr=0.01)
o2 = torch.optim.SGD(net.parameters(), lr=0.001)
nxt = net(X[:32])
for i in range(1200):
    cur = nxt
    o.zero_grad()
    o2.zero_grad()
    loss = (head(cur) - X[:32].sum(1, keepdim=True)).pow(2).mean()
    loss.backward()
    o2.step()
    nxt = net(X[:32] * ((i % 7) / 7))
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in [*net.parameters(), *head.parameters()]))
