# Tries: torch.func: vmap over stacked weights, functional_call with dicts of parameters, an optimizer made of dicts.
# expected: exact
import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

torch.manual_seed(0)
X = torch.randn(320, 8)
nets = [nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)) for _ in range(3)]
params, buffers = stack_module_state(nets)
params = {k: v.detach() for k, v in params.items()}
first = {k: torch.zeros_like(v) for k, v in params.items()}
base = nets[0]


def loss_of(p, b, x):
    return (functional_call(base, (p, b), (x,)).squeeze(1) - x.sum(1)).pow(2).mean()


slope = vmap(grad(loss_of), in_dims=(0, 0, None))
value = vmap(loss_of, in_dims=(0, 0, None))
for i in range(700):
    x = X[(i * 16) % 320:][:16]
    g = slope(params, buffers, x)
    first = {k: 0.9 * first[k] + g[k] for k in g}
    params = {k: params[k] - 3e-3 * first[k] for k in g}
    if i % 20 == 0:
        print(i, value(params, buffers, x).tolist(), flush=True)
print("final", sum(v.double().sum().item() for v in params.values()))
