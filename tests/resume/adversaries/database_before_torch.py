# Tries: a database that was opened before torch was there, written from the middle of training on. Its rows are counted at the end.
# expected: refused
# ignore: runs.db*
import os
import sqlite3

if os.path.exists("runs.db"):
    os.remove("runs.db")
db = sqlite3.connect("runs.db", isolation_level=None)
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
o = torch.optim.SGD(m.parameters(), 1e-2)
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i == 60:
        db.execute("pragma synchronous = off")
        db.execute("create table if not exists loss (step integer, value real)")
    if i >= 60 and i % 50 == 10:
        db.execute("insert into loss values (?, ?)", (i, loss.item()))
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), db.execute("select count(*) from loss").fetchall())
