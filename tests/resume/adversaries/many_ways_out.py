# Tries: every way I know by which a number leaves a tensor, each steering Python.
# short: yes
# expected: either
import math
import operator
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)
score = 0.0
for i in range(700):
    x = X[(i * 16) % 320:][:16]
    out = m(x).squeeze(1)
    loss = (out - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    t, n = loss.detach(), (out.detach() > 0).sum()
    ways = [float(t), int(t), "%.3f" % t, f"{t:.2f}", f"{n}", round(float(t), 2), math.floor(t), t.__float__(), operator.index(n), list(range(n))[-1:],
            [0] * n, "ab"[n % 2], divmod(int(n), 3), bool(t > 1), t.tolist(), t.item(), t.numpy().item(), str(t), repr(n), max([t, t * 2]).item(),
            sorted([t, -t, t * 3])[0].item(), hash(t.item()), math.sqrt(t), complex(t), t.is_nonzero(), torch.equal(n, n + 0), torch.allclose(t, t + 1e-9),
            (t == t.clone()).all() and 1, n in [torch.tensor(3), torch.tensor(5)], not t, x[:n].shape[0], x[n % 16].sum().item(), math.isnan(t), bytes(3)[: n % 3]]
    score = 0.9 * score + len(str(ways)) % 7 + sum(w for w in ways if type(w) in (int, float)) * 1e-3
    o.param_groups[0]["lr"] = 1e-2 / (1 + abs(score) * 0.01)
    if i % 20 == 0:
        print(i, t.item(), score, flush=True)
print("final", score, sum(p.double().sum().item() for p in m.parameters()))
