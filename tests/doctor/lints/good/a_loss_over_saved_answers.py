# Nothing wrong here: the second loop asks no network, so there is nothing to switch off.
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from parts import answers, targets, train_loader

net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
criterion = nn.MSELoss()
for x, y in train_loader:
    opt.zero_grad()
    criterion(net(x), y).backward()
    opt.step()
total = 0.0
for answer, target in DataLoader(TensorDataset(answers, targets), 64):
    total += criterion(answer, target).item()
print(total)
