# Tries: training data read line by line from an open file; the position, a csv reader and a re iterator are state in C.
# expected: either
import csv
import random
import re
import torch
from torch import nn

torch.manual_seed(0)
random.seed(0)
with open("data.csv", "w") as f:
    for _ in range(700):
        f.write(",".join(f"{random.gauss(0, 1):.6f}" for _ in range(9)) + "\n")
text = " ".join(str(random.randint(0, 9)) for _ in range(5000))
source = open("data.csv")
reader = csv.reader(open("data.csv"))
digits = re.finditer(r"\d", text)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
passes = 0
for i in range(1000):
    rows = []
    while len(rows) < 4:
        line = source.readline()
        if not line:
            source.seek(0)
            passes += 1
            continue
        rows.append([float(v) for v in line.split(",")])
    extra = next(reader, None)
    if extra is None:
        reader = csv.reader(open("data.csv"))
        extra = next(reader)
    rows.append([float(v) for v in extra])
    t = torch.tensor(rows) * (1 + 0.01 * int(next(digits).group()))
    loss = (m(t[:, :8]).squeeze(1) - t[:, 8]).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), passes, flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), source.tell())
