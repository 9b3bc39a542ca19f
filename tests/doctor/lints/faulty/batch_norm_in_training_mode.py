# A mistake on purpose: batch norm in training mode.
import torch
from torch import nn
from torch.utils.data import DataLoader
from parts import train_set, test_set

model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
test_loader = DataLoader(test_set, batch_size=32)
for epoch in range(3):
    for x, y in train_loader:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
with torch.no_grad():
    correct = 0
    for x, y in test_loader:  # lint: evaluation-mode
        correct += model(x).max(1)[1].eq(y).sum().item()
print(correct / len(test_set))
