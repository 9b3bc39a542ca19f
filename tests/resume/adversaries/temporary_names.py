# Tries: temporary folders and files with random names, uuid4 and secrets, whose names reach the training.
# expected: either
# seeded: no
import os
import secrets
import tempfile
import uuid
import torch
from torch import nn

torch.manual_seed(0)
folder = tempfile.mkdtemp(prefix="train-")
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)
history, ok = [], True
for i in range(1000):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 50 == 20:
        name = f"{uuid.uuid4().hex}-{secrets.token_hex(4)}"
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as f:
            f.write(f"{name} {loss.item()!r}")
        history.append((f.name, name, loss.item()))
    if i % 25 == 0:
        print(i, loss.item(), len(os.listdir(folder)), flush=True)
for path, name, value in history:
    ok = ok and open(path).read() == f"{name} {value!r}"
print("consistent", ok, len(history), len(os.listdir(folder)))
