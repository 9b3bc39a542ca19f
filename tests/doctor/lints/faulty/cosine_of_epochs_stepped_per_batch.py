# A mistake on purpose: cosine of epochs stepped per batch.
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR
from parts import model, loader, loss_of

EPOCHS = 90
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = CosineAnnealingLR(optimizer, T_max=EPOCHS)
for epoch in range(EPOCHS):
    for x, y in loader:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()  # lint: scheduler-place
