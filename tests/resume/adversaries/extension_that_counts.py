# Tries: an extension in C that lies beside the script keeps a count for forward(), seen at the end only. (It is a copy of Python's own csv.)
# expected: refused
# ignore: own_*.so
import _csv
import importlib.util
import os
import shutil
import sys
import torch
from torch import nn

torch.manual_seed(0)
if not os.path.exists("own_csv.so"):
    shutil.copyfile(_csv.__file__, "own_csv.so")
spec = importlib.util.spec_from_file_location("own._csv", os.path.abspath("own_csv.so"))
own = sys.modules["own._csv"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(own)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x):
        own.field_size_limit(own.field_size_limit() + 1)
        return self.b(self.a(x).relu()).squeeze(1)


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
print("final", sum(p.double().sum().item() for p in m.parameters()), own.field_size_limit())
