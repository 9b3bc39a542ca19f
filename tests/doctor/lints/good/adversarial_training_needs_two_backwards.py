# Nothing wrong here: adversarial training needs two backwards.
import torch
import torch.nn.functional as F
from parts import model, loader

opt = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(10):
    for x, y in loader:
        x.requires_grad_(True)
        clean = F.cross_entropy(model(x), y)
        grad, = torch.autograd.grad(clean, x, retain_graph=True)
        worse = (x + 0.03 * grad.sign()).detach()
        loss = 0.5 * clean + 0.5 * F.cross_entropy(model(worse), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
