# Tries: weights are saved into an SQLite database in memory, and read back at the end
# expected: either
import io
import sqlite3

import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x):
        return self.b(self.a(x).relu()).squeeze(1)


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
db = sqlite3.connect(":memory:")
db.execute("create table w (i integer, data blob)")
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 50 == 3:
        data = io.BytesIO()
        torch.save(m.state_dict(), data)
        db.execute("insert into w values (?, ?)", (i, data.getvalue()))
        del data
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
total = sum(p.double().sum().item() for (data,) in db.execute("select data from w") for p in torch.load(io.BytesIO(data)).values())
print("final", sum(p.double().sum().item() for p in m.parameters()), total)
