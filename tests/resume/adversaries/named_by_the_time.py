# Tries: run folders named by the time that is asked for in every way without an argument, before torch is there and after it, in names with a host and a process number.
# expected: exact
# short: yes
# seeded: no
import os
import time
from datetime import date, datetime, timezone
from time import strftime as now_as

began = datetime.now()
NAMES = [now_as("%Y-%m-%d_%H-%M-%S"), f"{began:%b%d_%H-%M-%S-%f}", datetime.today().isoformat(), datetime.now(timezone.utc).isoformat(), str(date.today())]

import socket  # noqa: E402
import uuid  # noqa: E402

import torch  # noqa: E402
from torch import nn  # noqa: E402

NAMES += [time.ctime(), time.asctime(), f"{time.localtime().tm_sec}-{time.gmtime().tm_min}", f"{datetime.now()}", time.strftime("%X")]
NAMES += [f"{socket.gethostname()}-{os.getpid()}", f"{uuid.uuid1()}", f"{uuid.uuid4()}"]
for name in NAMES:
    os.makedirs(os.path.join("runs", name), exist_ok=True)
folder = os.path.join("runs", NAMES[0])
torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)
stamps = []
for i in range(1500):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 50 == 20:
        stamps.append(f"{i}-{time.strftime('%H-%M-%S')}-{datetime.now():%f}")
        torch.save(m.state_dict(), os.path.join(folder, stamps[-1] + ".pt"))
    if i % 25 == 0:
        with open(os.path.join(folder, "log.txt"), "a") as f:
            f.write(f"{time.asctime()} {loss.item()!r}\n")
        print(i, loss.item(), flush=True)
lines = open(os.path.join(folder, "log.txt")).read().splitlines()
kept = sorted(os.listdir(folder)) == sorted([*(s + ".pt" for s in stamps), "log.txt"])
print("consistent", sorted(os.listdir("runs")) == sorted(set(NAMES)), kept, len(lines), lines[-1].split()[-1], (datetime.now() - began).total_seconds() >= 0)
