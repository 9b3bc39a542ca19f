# A mistake on purpose: set seed by function.
import random
import numpy as np
import torch
from parts import model, loader, loss_of


def set_seed(seed=0):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(10):
    set_seed(1234)  # lint: seed-in-loop
    for x, y in loader:
        opt.zero_grad()
        loss_of(model(x), y).backward()
        opt.step()
