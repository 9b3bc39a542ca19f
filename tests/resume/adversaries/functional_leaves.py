# Tries: functional_call on dicts of leaves, with backward and updates by hand.
# expected: exact
import torch
from torch import nn
from torch.func import functional_call
torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(*[nn.Linear(8, 8) for _ in range(9)], nn.Linear(8, 1))
params = {k: p.detach().clone().requires_grad_() for k, p in m.named_parameters()}
for i in range(500):
    x = X[(i * 16) % 320:][:16]
    loss = (functional_call(m, params, (x,)).squeeze(1) - x.sum(1)).pow(2).mean()
    loss.backward()
    if i % 2:
        with torch.no_grad():
            for p in params.values():
                p -= 1e-2 * p.grad
                p.grad = None
    else:
        params = {k: (p - 1e-2 * p.grad).detach().requires_grad_() for k, p in params.items()}
    if i % 20 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in params.values()))
