# Tries: graphs of graphs: create_graph, retain_graph, a detached copy trained inside, gradients kept over steps.
# expected: either
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
d = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
g = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 8))
od, og = torch.optim.Adam(d.parameters(), 1e-3), torch.optim.Adam(g.parameters(), 1e-3)
memory = None
for i in range(700):
    real, fake = X[(i * 16) % 320:][:16], g(torch.randn(16, 4))
    mix = (torch.rand(16, 1) * real + 0.5 * fake.detach()).requires_grad_()
    (slope,) = torch.autograd.grad(d(mix).sum(), mix, create_graph=True)
    loss_d = d(fake.detach()).mean() - d(real).mean() + 10 * (slope.norm(dim=1) - 1).pow(2).mean()
    od.zero_grad()
    loss_d.backward(retain_graph=True)
    grads = [p.grad.clone() for p in d.parameters()]
    if memory is not None:
        for p, old in zip(d.parameters(), memory):
            p.grad.add_(old, alpha=0.1)
    memory = grads
    od.step()
    loss_g = -d(fake).mean()
    inputs = list(g.parameters())
    for p, q in zip(inputs, torch.autograd.grad(loss_g, inputs)):
        p.grad = q
    og.step()
    if i % 20 == 0:
        print(i, loss_d.item(), loss_g.item(), sum(x.norm().item() for x in memory), flush=True)
print("final", sum(p.double().sum().item() for p in [*d.parameters(), *g.parameters()]))
