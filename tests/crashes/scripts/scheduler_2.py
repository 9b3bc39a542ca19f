"""More steps than the scheduler was made for, with a warning before."""
import torch
from torch.optim import lr_scheduler


def make(model, total_steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return optimizer, lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=total_steps)


def train(model, epochs=3, per_epoch=5):
    optimizer, scheduler = make(model, total_steps=epochs * per_epoch - 2)
    scheduler.step()  # too early: torch warns here
    for epoch in range(epochs):
        for i in range(per_epoch):
            optimizer.zero_grad()
            loss = model(torch.full((2, 3), float(i))).mean()
            loss.backward()
            optimizer.step()
            scheduler.step()  # here
        print("epoch %d done, lr %.5f" % (epoch, scheduler.get_last_lr()[0]))


torch.manual_seed(0)
try:
    train(torch.nn.Linear(3, 1))
finally:
    print("cleaning up")
