# Tries: checkpoints written beside and renamed, only the last three kept, listed by glob, the newest loaded again after a bad loss.
# short: yes
# expected: exact
import glob
import os
import torch
from torch import nn

torch.manual_seed(0)
os.makedirs("ckpt", exist_ok=True)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 3e-2)
rollbacks, low = 0, None
for i in range(1, 1001):
    x = X[(i * 16) % 320:][:16] * (8 if i % 190 == 0 else 1)
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    low = loss.item() if low is None else min(low, loss.item())
    if i % 30 == 0:
        path = f"ckpt/step{i:05d}.pt"
        torch.save({"model": m.state_dict(), "opt": o.state_dict(), "step": i}, path + ".tmp")
        os.replace(path + ".tmp", path)
        for old in sorted(glob.glob("ckpt/step*.pt"))[:-3]:
            os.remove(old)
    if loss > 20 * low + 5 and i > 60:
        back = torch.load(sorted(glob.glob("ckpt/*.pt"))[-1])
        m.load_state_dict(back["model"])
        o.load_state_dict(back["opt"])
        rollbacks += 1
    if i % 25 == 0:
        print(i, loss.item(), rollbacks, sorted(os.listdir("ckpt")), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), rollbacks)
