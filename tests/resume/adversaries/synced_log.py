# Tries: keeps its log and its best weights as databases do: flushed, synced, renamed; and asks the open file how long it is
# expected: exact
import os

import torch
from torch import nn

torch.manual_seed(0)
log = open("log.txt", "w")
m = nn.Linear(4, 1)
o = torch.optim.SGD(m.parameters(), 0.01)


def sync_folder():
    folder = os.open(".", os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


for i in range(1000):
    loss = (m(torch.randn(8, 4)) - torch.randn(8, 1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 10 == 0:
        log.write(f"{i} {loss.item()}\n")
        log.flush()
        os.fsync(log.fileno())
        os.fdatasync(log)
    if i % 50 == 0:
        size = os.fstat(log.fileno()).st_size
        print(i, size, os.path.getsize("log.txt"))
        with open("best.tmp", "wb") as f:
            torch.save(m.state_dict(), f)
            f.flush()
            os.fsync(f.fileno())
        os.replace("best.tmp", "best.pt")
        sync_folder()
print("final", loss.item())
