# Tries: tensors known only through weak references and through objects that hold them elsewhere.
# expected: either
import weakref
import torch
from torch import nn

torch.manual_seed(0)


class Slot:
    def __init__(self, v):
        self.v = v


table = weakref.WeakValueDictionary()
extra = weakref.WeakKeyDictionary()
keep = []
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    out = m(x).squeeze(1)
    loss = (out - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    slot = table.get(i % 11)
    if slot is None:
        slot = Slot(torch.zeros(16))
        table[i % 11] = slot
        extra[slot] = torch.zeros(())
        keep.append(slot)
        if len(keep) > 7:
            keep.pop(0)
    slot.v = slot.v * 0.9 + out.detach()
    extra[slot] += slot.v.sum()
    if i % 25 == 0:
        print(i, loss.item(), len(table), float(sum(extra.values())), flush=True)
print("final", float(sum(s.v.double().sum() for s in keep)))
