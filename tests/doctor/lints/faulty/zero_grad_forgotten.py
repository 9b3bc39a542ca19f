# A mistake on purpose: zero grad forgotten.
import torch
from torch import nn
from torch.utils.data import DataLoader
from parts import dataset

loader = DataLoader(dataset, batch_size=8, shuffle=True)
model = nn.Linear(10, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(10):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()  # lint: no-zero-grad
