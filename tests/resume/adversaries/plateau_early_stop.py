# Tries: how long it trains is up to the values: plateau, patience, early stop, best weights restored.
# expected: exact
import copy
import torch
from torch import nn

torch.manual_seed(0)
X, V = torch.randn(320, 8), torch.randn(100, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 3e-2)
plan = torch.optim.lr_scheduler.ReduceLROnPlateau(o, factor=0.7, patience=1)
best, bad, epoch = None, 0, 0
while bad < 12 and epoch < 150:
    for i in torch.randperm(20):
        x = X[i * 16:(i + 1) * 16]
        loss = (m(x).squeeze(1) - (x[:, 0] * x[:, 1])).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
    with torch.no_grad():
        val = (m(V).squeeze(1) - V[:, 0] * V[:, 1]).pow(2).mean()
    plan.step(val)
    if best is None or val < best[0] - 1e-4:
        best, bad = (val, copy.deepcopy(m.state_dict())), 0
    else:
        bad += 1
    epoch += 1
    print(epoch, val.item(), bad, o.param_groups[0]["lr"], flush=True)
m.load_state_dict(best[1])
print("final", epoch, best[0].item(), sum(p.double().sum().item() for p in m.parameters()))
