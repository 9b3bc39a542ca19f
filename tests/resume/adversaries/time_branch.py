# Tries: wall-clock decides when the learning rate falls; the script then repeats its own decisions and compares.
# short: yes
# expected: either
# seeded: no
import hashlib
import time
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(640, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
first = {k: v.clone() for k, v in m.state_dict().items()}


def train(rates, say):
    o = torch.optim.Adam(m.parameters(), 1e-2)
    clock, chosen = time.perf_counter(), []
    for i in range(1200):
        x = X[i * 16 % 640:][:16]
        loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
        o.zero_grad()
        loss.backward()
        lr = rates[i] if rates else 1e-2 if time.perf_counter() - clock < 0.4 else 1e-3 if time.time() % 1 < 0.5 else 2e-3
        chosen.append(lr)
        o.param_groups[0]["lr"] = lr
        o.step()
        if say and i % 25 == 0:
            print(i, loss.item(), lr, flush=True)
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in m.parameters())).hexdigest(), chosen


one, rates = train(None, True)
m.load_state_dict(first)
print("consistent", one == train(rates, False)[0])
