# Tries: files written in every style across images: chdir, gzip, zip, np.save, csv, buffered, moved, linked, deleted and made again.
# expected: either
# leftovers: yes
import csv
import gzip
import os
import pathlib
import shutil
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
os.makedirs("out/deep", exist_ok=True)
os.chdir("out")
packed = gzip.GzipFile("loss.gz", "w", mtime=0)
table = csv.writer(open("loss.csv", "w", newline=""))
slow = open("slow.txt", "w")
added = open("added.txt", "a")
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1000):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    slow.write(f"{i} ")
    if i % 5 == 0:
        packed.write(f"{i} {loss.item()}\n".encode())
        table.writerow([i, loss.item()])
        print(i, file=added, flush=True)
    if i % 60 == 30:
        np.save("now.npy", m[0].weight.detach().numpy())
        if os.path.exists("deep/old.npy"):
            os.remove("deep/old.npy")
        if i > 300 and os.path.exists("deep/link"):
            os.unlink("deep/link")
        shutil.move("now.npy", "deep/old.npy")
        if not os.path.exists("deep/link"):
            os.symlink("old.npy", "deep/link")
        pathlib.Path("deep/last.txt").write_text(f"{i} {loss.item()}")
    if i % 250 == 130:
        shutil.rmtree("scratch", ignore_errors=True)
        os.makedirs(f"scratch/{i}")
        pathlib.Path(f"scratch/{i}/a").write_bytes(bytes(i))
    if i % 25 == 0:
        print(i, loss.item(), sorted(os.listdir("deep")), flush=True)
packed.close()
print("final", sum(p.double().sum().item() for p in m.parameters()), np.load("deep/old.npy").sum())
