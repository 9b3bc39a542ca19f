# A mistake on purpose: onecycle stepped per epoch.
import torch
from parts import model, train_loader, loss_of

epochs = 12
opt = torch.optim.SGD(model.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.4, steps_per_epoch=len(train_loader), epochs=epochs)
for epoch in range(epochs):
    for x, y in train_loader:
        opt.zero_grad()
        loss_of(model(x), y).backward()
        opt.step()
    sched.step()  # lint: scheduler-place
