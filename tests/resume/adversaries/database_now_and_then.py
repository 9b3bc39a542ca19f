# Tries: a database that is opened for a moment only, now and then in training; a ghost writes into it once more. Its rows are counted at the end.
# expected: refused
# ignore: runs.db*
import contextlib
import os
import sqlite3
import torch
from torch import nn

torch.manual_seed(0)
if os.path.exists("runs.db"):
    os.remove("runs.db")


def ask(*words):
    with contextlib.closing(sqlite3.connect("runs.db", isolation_level=None)) as db:
        db.execute("pragma synchronous = off")
        return db.execute(*words).fetchall()


ask("create table if not exists loss (step integer, value real)")
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
o = torch.optim.SGD(m.parameters(), 1e-2)
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 50 == 10:
        ask("insert into loss values (?, ?)", (i, loss.item()))
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), ask("select count(*) from loss"))
