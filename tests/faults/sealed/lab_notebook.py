# Every step goes into the lab notebook, with histograms of all weights.
import csv
import os
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


class Notebook:
    def __init__(self, path):
        self.file = open(path, "w", newline="")
        self.writer = csv.writer(self.file)

    def note(self, step, model, loss):
        row = [step, loss]
        for p in model.parameters():
            row += torch.histc(p.detach(), bins=30).tolist()
            row += torch.histc(p.grad, bins=30).tolist()
        self.writer.writerow(row)
        self.file.flush()
        os.fsync(self.file.fileno())


torch.manual_seed(44)
x = torch.rand(4800, 48)
y = (x @ torch.rand(48, 1)).sin()
net = nn.Sequential(nn.Linear(48, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 1))
adam = optim.Adam(net.parameters(), lr=2e-3)
book = Notebook("notebook.csv")
step = 0
for epoch in range(6):
    for inputs, targets in DataLoader(TensorDataset(x, y), batch_size=48, shuffle=True):
        error = nn.functional.mse_loss(net(inputs), targets)
        adam.zero_grad()
        error.backward()
        adam.step()
        step += 1
        book.note(step, net, error.item())
    print("epoch", epoch, "error", error.item())
