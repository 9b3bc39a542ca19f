# Tries: tensors in threading.local, contextvars, slots, properties, partials, tees, maps, heaps, tuples and frozen sets.
# short: yes
# expected: either
import collections
import contextvars
import functools
import heapq
import itertools
import threading
import types
import torch
from torch import nn

torch.manual_seed(0)
local = threading.local()
local.t = torch.zeros(8)
var = contextvars.ContextVar("var")
var.set(torch.zeros(8))
heap = [(0, torch.zeros(8))]
pair = (torch.zeros(8), frozenset([torch.zeros(8)]))
part = functools.partial(torch.Tensor.add_, torch.zeros(8))
space = types.SimpleNamespace(t=torch.zeros(8))
a_tee, b_tee = itertools.tee((torch.full((8,), 0.01 * j) for j in range(5000)), 2)
maps = map(lambda t: t * 2, itertools.repeat(torch.zeros(8)))
chain = collections.ChainMap({"t": torch.zeros(8)}, collections.OrderedDict(u=torch.zeros(8)))


class Slots:
    __slots__ = ("t",)


slots = Slots()
slots.t = torch.zeros(8)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(900):
    x = X[(i * 16) % 320:][:16]
    d = x.mean(0)
    for t in (local.t, var.get(), heap[0][1], pair[0], next(iter(pair[1])), space.t, slots.t, chain["t"], chain["u"]):
        t.mul_(0.9).add_(d, alpha=0.1)
    if i % 9 == 0:
        heapq.heappush(heap, (i + 1, d.clone()))
        if len(heap) > 5:
            heapq.heappop(heap)
    if i % 2:
        next(a_tee)
    extra = part(d * 0.01) * 0.1 + next(b_tee) * 0.01 + next(maps) + var.get() + local.t + space.t + slots.t + chain["t"] + chain["u"] + sum(h[1] for h in heap)
    loss = (m(x + 0.1 * extra + pair[0]).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), extra.sum().item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), next(a_tee).sum().item(), next(b_tee).sum().item())
