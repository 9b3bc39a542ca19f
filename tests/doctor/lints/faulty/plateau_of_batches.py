# A mistake on purpose: a schedule that waits for 5 epochs without progress is asked at each batch.
import torch
from parts import model, loader, loss_of

opt = torch.optim.SGD(model.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, "min", factor=0.5, patience=5)
for epoch in range(100):
    for x, y in loader:
        opt.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        opt.step()
        sched.step(loss)  # lint: scheduler-place
