# A mistake on purpose: logger every step.
import logging
import torch
from parts import model, loader, loss_of

log = logging.getLogger(__name__)
opt = torch.optim.SGD(model.parameters(), lr=0.1)


def train_step(i, x, y):
    opt.zero_grad()
    loss = loss_of(model(x), y)
    loss.backward()
    opt.step()
    log.info("step %d", i)  # lint: print-each-step


for epoch in range(3):
    for i, (x, y) in enumerate(loader):
        train_step(i, x, y)
