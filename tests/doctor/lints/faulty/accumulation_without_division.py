# A mistake on purpose: accumulation without division.
import torch
from torch import nn
from parts import model, loader

accumulation_steps = 4
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x), y)
        loss.backward()  # lint: accumulation-undivided
        if (i + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
