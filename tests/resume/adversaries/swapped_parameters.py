# Tries: parameters whose data is exchanged, which are replaced, pruned, frozen and put into the optimizer late.
# expected: either
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1000):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 100 == 30:
        m[0].weight.data, m[0].bias.data = m[0].weight.data.flip(0).clone(), m[0].bias.data.flip(0).clone()
    if i % 150 == 70:
        new = nn.Parameter(m[2].weight.detach() * (m[2].weight.detach().abs() > 0.02))
        o.state[new] = o.state.pop(m[2].weight)
        o.param_groups[0]["params"] = [new if p is m[2].weight else p for p in o.param_groups[0]["params"]]
        m[2].weight = new
    if i == 400:
        m[4].bias.requires_grad_(False)
        o.param_groups[0]["params"] = [p for p in o.param_groups[0]["params"] if p is not m[4].bias]
    if i == 700:
        o.add_param_group({"params": [m[4].bias.requires_grad_(True)], "lr": 1e-3})
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), [len(g["params"]) for g in o.param_groups])
