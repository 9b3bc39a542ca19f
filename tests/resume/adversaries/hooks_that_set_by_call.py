# Tries: hooks that write by calls instead of statements: __setitem__, setattr, operator.setitem, heappush, insort, copyto, fill, put, rotate. The loop counts with what they left.
# expected: exact
import bisect
import heapq
import operator
from collections import Counter, deque

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
largest, ordered, turns, means, counts = [], [], deque(range(5)), np.zeros(4), np.zeros(3, dtype=np.int64)
flat, left = np.zeros(2), Counter(all=100000)


class Activations:
    def __init__(self, net):
        self.means, self.last = {}, 0.0
        for name, module in net.named_children():
            if isinstance(module, nn.Linear):
                module.register_forward_hook(lambda m, a, out, name=name: self.means.__setitem__(name, float(out.detach().abs().mean())))
        net[1].register_forward_hook(lambda m, a, out: setattr(self, "last", out.detach().max().item()))


m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
seen, table = Activations(m), {"mean": 0.0}
m[0].register_forward_hook(lambda m, a, out: operator.setitem(table, "mean", out.detach().mean().item()))
m[0].register_forward_hook(lambda m, a, out: heapq.heappush(largest, -out.detach().max().item()))
m[2].register_forward_hook(lambda m, a, out: bisect.insort(ordered, out.detach().min().item()))
m[2].register_forward_hook(lambda m, a, out: turns.rotate(1))
m[2].register_forward_hook(lambda m, a, out: np.copyto(means, out.detach()[:4, 0].numpy()))
m[1].register_forward_hook(lambda m, a, out: counts.put([int(out.detach().sum().item()) % 3], 7))
m[1].register_forward_hook(lambda m, a, out: flat.fill(out.detach().std().item()))
m[1].register_forward_hook(lambda m, a, out: left.subtract(all=1))
X = torch.randn(320, 8)
o = torch.optim.Adam(m.parameters(), 1e-2)
total = 0.0
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    total += sum(seen.means.values()) + seen.last + table["mean"] + largest[0] + ordered[0] + turns[0] + means.sum() + counts.sum() + flat[1]
    del largest[20:], ordered[20:]
    counts[i % 3] = 0
    if i % 50 == 0:
        print(i, f"{loss.item():.9f} {total:.9f}", list(turns), counts.tolist(), left["all"], flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), total)
