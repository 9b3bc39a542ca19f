# Tries: checkpoints are written to a temporary file beside them, which is then put in their place; notes the same way.
# expected: exact
import os
import tempfile

import torch
from torch import nn

torch.manual_seed(0)
os.makedirs("kept", exist_ok=True)


def keep(what, path):
    with tempfile.NamedTemporaryFile(dir="kept", delete=False) as f:
        torch.save(what, f)
    os.replace(f.name, path)


def note(text):
    with tempfile.NamedTemporaryFile("w", dir="kept", delete=False, suffix=".txt") as f:
        f.write(text)
        print(len(os.path.basename(f.name)), flush=True)
    os.replace(f.name, "kept/note.txt")


x = torch.randn(320, 8)
y = x.sum(1, keepdim=True)
m = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 1))
o = torch.optim.Adam(m.parameters(), 1e-3)
for epoch in range(30):
    for i in torch.randperm(320).split(16):
        loss = (m(x[i]) - y[i]).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
    print(epoch, f"{loss.item():.9f}", flush=True)
    keep({"model": m.state_dict(), "epoch": epoch}, "kept/last.pt")
    if epoch % 4 == 0:
        note(f"{epoch} {loss.item():.9f}\n")
with tempfile.NamedTemporaryFile() as f:
    print(f.write(b"abc"), len(os.listdir("kept")), open("kept/note.txt").read())
