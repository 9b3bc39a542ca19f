# A mistake on purpose: pinned for nothing.
import torch
from torch.utils.data import DataLoader
from parts import dataset, model, loss_of

loader = DataLoader(dataset, batch_size=32, shuffle=True, pin_memory=True)  # lint: pin-without-gpu
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in loader:
        opt.zero_grad()
        loss_of(model(x), y).backward()
        opt.step()
