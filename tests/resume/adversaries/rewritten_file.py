# Tries: a file is rewritten after the image, and what it held at the image is read again.
# short: yes
# expected: exact
import json
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)


def save(**state):
    with open("state.json", "w") as f:
        json.dump(state, f)


save(lr=1e-2, best=None)
for i in range(1200):
    state = json.load(open("state.json"))
    for g in o.param_groups:
        g["lr"] = state["lr"]
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 20 == 7:
        save(lr=state["lr"] * 0.97, best=loss.item())
    if i % 25 == 0:
        print(i, loss.item(), state, flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
