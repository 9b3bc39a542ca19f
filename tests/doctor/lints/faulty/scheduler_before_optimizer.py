# A mistake on purpose: scheduler before optimizer.
import torch
from torch.optim import lr_scheduler
from parts import model, train_loader, loss_of

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = lr_scheduler.StepLR(optimizer, step_size=30)
for epoch in range(90):
    scheduler.step()  # lint: scheduler-order
    for x, y in train_loader:
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
