# Tries: per-sample gradients by vmap(grad_and_value), Jacobians, a Hessian and jvp beside an ordinary optimizer.
# expected: exact
import torch
from torch import nn
from torch.func import functional_call, grad_and_value, hessian, jacrev, jacfwd, jvp, vmap
torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
o = torch.optim.SGD(m.parameters(), 1e-2, momentum=0.9)
def f(p, x):
    return functional_call(m, p, (x.unsqueeze(0),)).sum()
def l(p, x):
    return (f(p, x) - x.sum()).pow(2)
for i in range(400):
    x = X[(i * 16) % 320:][:16]
    p = {k: v.detach() for k, v in m.named_parameters()}
    g, losses = vmap(grad_and_value(l), (None, 0))(p, x)
    norm = sum(v.flatten(1).pow(2).sum(1) for v in g.values()).sqrt()
    scale = (1.0 / norm).clamp(max=1.0)
    for k, v in m.named_parameters():
        v.grad = (g[k] * scale.view(-1, *[1] * (g[k].dim() - 1))).mean(0)
    o.step()
    if i % 20 == 0:
        J = vmap(jacrev(f, 1), (None, 0))(p, x[:2])
        H = hessian(lambda z: f(p, z))(x[0])
        F = jacfwd(lambda z: f(p, z))(x[0])
        out, tan = jvp(lambda z: f(p, z), (x[0],), (x[1],))
        print(i, losses.mean().item(), J.sum().item(), H.diagonal().sum().item(), F.norm().item(), tan.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
