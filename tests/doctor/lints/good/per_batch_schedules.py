# Nothing wrong here: per batch schedules.
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR, StepLR
from torch.utils.data import DataLoader
from parts import model, dataset, loss_of

EPOCHS = 30
loader = DataLoader(dataset, batch_size=64, shuffle=True)
steps = EPOCHS * len(loader)
opt = torch.optim.SGD(model.parameters(), lr=0.3)
schedule = SequentialLR(opt, [LinearLR(opt, 0.01, total_iters=500), CosineAnnealingLR(opt, T_max=steps - 500)], [500])
opt2 = torch.optim.SGD(model.parameters(), lr=0.3)
slow = StepLR(opt2, step_size=5000, gamma=0.5)
for epoch in range(EPOCHS):
    for x, y in loader:
        for o in (opt, opt2):
            o.zero_grad()
        loss_of(model(x), y).backward()
        opt.step()
        opt2.step()
        schedule.step()
        slow.step()
