"""Backward twice through the same graph, after some epochs."""
import torch

w = torch.randn(5, 1, generator=torch.Generator().manual_seed(0)).requires_grad_()
opt = torch.optim.SGD([w], lr=0.01)
x = torch.linspace(-1, 1, 50).view(10, 5)
for epoch in range(8):
    loss = (x @ w).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print("epoch", epoch, round(loss.item(), 5))

loss.backward()  # here
