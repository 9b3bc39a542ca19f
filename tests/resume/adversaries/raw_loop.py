# Tries: no Module, no Optimizer: autograd.grad and arithmetic on leaves that are replaced in every step.
# expected: either
import torch

torch.manual_seed(0)
X = torch.randn(320, 8)
Y = X.sum(1, keepdim=True)
w1, b1 = torch.randn(8, 32) * 0.3, torch.zeros(32)
w2, b2 = torch.randn(32, 1) * 0.3, torch.zeros(1)
params = [p.requires_grad_() for p in (w1, b1, w2, b2)]
speed = [torch.zeros_like(p) for p in params]
best = None
for i in range(3000):
    x, y = X[(i * 16) % 320:][:16], Y[(i * 16) % 320:][:16]
    w1, b1, w2, b2 = params
    loss = ((x @ w1 + b1).relu() @ w2 + b2 - y).pow(2).mean()
    grads = torch.autograd.grad(loss, params)
    speed = [0.9 * s + g for s, g in zip(speed, grads)]
    params = [(p - 3e-3 * s).detach().requires_grad_() for p, s in zip(params, speed)]
    if best is None or loss < best:
        best = loss.detach()
    if i % 50 == 0:
        print(i, loss.item(), best.item(), flush=True)
print("final", sum(p.double().sum().item() for p in params))
