"""Samples of unequal shapes in one batch."""
import torch
from torch.utils.data import DataLoader

data = [(torch.ones(3), 0)] * 9 + [(torch.ones(4), 1)]
model = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=2):  # here
    opt.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    opt.step()
    print(x.shape, y)
