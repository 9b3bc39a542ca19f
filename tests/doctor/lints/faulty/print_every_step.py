# A mistake on purpose: print every step.
import torch
from parts import model, loader, loss_of

optimizer = torch.optim.Adam(model.parameters())
for epoch in range(10):
    for i, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        print("epoch", epoch, "batch", i, "loss", loss.detach())  # lint: print-each-step
