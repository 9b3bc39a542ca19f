# Tries: objects of the script's own classes made in a forward, that hold each other, have slots, are kept under two names and in a class variable
# expected: exact
import dataclasses

import torch
from torch import nn

torch.manual_seed(0)


@dataclasses.dataclass(frozen=True)
class Place:
    row: int
    weight: torch.Tensor


class Node:
    __slots__ = ("count", "parent", "place", "unset")
    newest = None

    def __init__(self, parent, place):
        self.parent, self.place, self.count = parent, place, 0
        Node.newest = self


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.root = self.last = None
        self.nodes = {}
        self.calls = 0

    def forward(self, x):
        h = self.a(x).relu()
        self.calls += 1
        if self.root is None:
            self.root = Node(None, Place(0, h.detach()[0].clone()))
            self.root.parent = self.root
            self.last = self.root
        if self.calls % 7 == 0:
            self.last = Node(self.last if len(self.nodes) % 5 else self.root, Place(self.calls, h.detach().mean(0)))
            self.nodes[self.calls % 21] = self.last
        self.last.count += 1
        up = self.last.parent
        return self.b(h + 0.1 * self.last.place.weight + 0.1 * up.place.weight + 0.001 * up.count).squeeze(1)


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), m.last.count, m.root.count, Node.newest is m.last)
