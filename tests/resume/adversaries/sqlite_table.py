# Tries: metrics go to a database through a C library, and the learning rate comes out of it again.
# expected: either
# leftovers: yes
# ignore: runs.db*
import sqlite3
import torch
from torch import nn

torch.manual_seed(0)
db = sqlite3.connect("runs.db")
db.execute("create table if not exists loss (step integer, value real)")
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 20 == 0:
        db.execute("insert into loss values (?, ?)", (i, loss.item()))
        db.commit()
        (n, mean), = db.execute("select count(*), avg(value) from loss")
        o.param_groups[0]["lr"] = 1e-2 / (1 + n * 0.01)
        print(i, loss.item(), n, mean, flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
