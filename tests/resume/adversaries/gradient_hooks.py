# Tries: hooks on parameters and tensors that keep norms, counts and tensors in Python and change gradients by them.
# expected: either
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-1)
running = {}
count = 0


def hook(name):
    def clip(g):
        global count
        count += 1
        old = running.get(name)
        running[name] = g.norm() if old is None else 0.95 * old + 0.05 * g.norm()
        return g / (1 + running[name])

    return clip


for n, p in m.named_parameters():
    p.register_hook(hook(n))
m[2].register_full_backward_hook(lambda mod, gi, go: running.__setitem__("out", running.get("out", 0.0) + go[0].sum().item()))


def late(p):
    p.grad.mul_(1 + 0.01 * (count % 3))


m[0].weight.register_post_accumulate_grad_hook(late)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), {k: float(v) for k, v in running.items()}, count)
