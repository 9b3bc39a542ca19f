# Tries: an own PYTHONHASHSEED=random: each life walks its sets of strings in another order.
# expected: either
# seeded: no
# hashseed: random
import hashlib
import torch
from torch import nn

torch.manual_seed(0)
names = {f"part-{i}" for i in range(40)}
order = [int(n[5:]) for n in names]
X = torch.randn(640, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
first = {k: v.clone() for k, v in m.state_dict().items()}


def train(order, say):
    o = torch.optim.Adam(m.parameters(), 1e-2)
    for i in range(1000):
        x = X[order[i % 40] * 16:][:16]
        loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        if say and i % 25 == 0:
            print(i, loss.item(), flush=True)
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in m.parameters())).hexdigest()


one = train(order, True)
m.load_state_dict(first)
print("consistent", one == train([int(n[5:]) for n in names], False))
