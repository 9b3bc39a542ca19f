# Tries: a weak reference as the only way to things in a circle that wait for the garbage collector, with a tensor that goes on changing.
# expected: exact
import gc
import weakref

import torch
from torch import nn

gc.disable()
torch.manual_seed(0)


class Node:
    def __init__(self, size):
        self.me, self.mean = self, torch.zeros(size)


table = weakref.WeakValueDictionary()
table["a"] = Node(6)
lone = weakref.ref(Node(6))
net = nn.Linear(6, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.05)
total = 0.0
for step in range(600):
    x = torch.randn(8, 6)
    node = table.get("a")
    if node is not None:
        node.mean.mul_(0.9).add_(x.mean(0))
        x = x + node.mean
    other = lone()
    if other is not None:
        other.mean.add_(0.01)
        x = x * (1 + other.mean)
    del node, other
    loss = net(x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    total += loss.item()
    if step % 25 == 0:
        print(step, f"{total:.9f}", flush=True)
torch.save(net.state_dict(), "net.pt")
