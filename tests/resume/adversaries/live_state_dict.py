# Tries: a state_dict taken once and read later shows the living tensors; another was copied; both are loaded back.
# expected: exact
import copy
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
m(X).sum().backward()
o.step()
live, live_o = m.state_dict(), o.state_dict()
frozen, frozen_o = copy.deepcopy(live), copy.deepcopy(live_o)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 140 == 90:
        live["0.weight"].mul_(0.9)
        live_o["state"][0]["exp_avg"].mul_(0.5)
    if i % 260 == 200:
        mixed = {k: 0.7 * v + 0.3 * frozen[k] if v.is_floating_point() else v for k, v in live.items()}
        frozen, frozen_o = copy.deepcopy(live), copy.deepcopy(o.state_dict())
        m.load_state_dict(mixed)
    if i == 650:
        o.load_state_dict(frozen_o)
    if i % 25 == 0:
        print(i, loss.item(), live["1.running_mean"].sum().item(), flush=True)
print("final", sum(v.double().sum().item() for v in live.values()), sum(v.double().sum().item() for v in frozen.values()))
