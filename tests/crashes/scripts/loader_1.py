"""A data set that says it is longer than it is."""
import torch
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __init__(self, n):
        self.x = [float(i) for i in range(n)]

    def __len__(self):
        return len(self.x) + 1

    def __getitem__(self, i):
        return torch.tensor([self.x[i]]), torch.tensor([self.x[i] ** 2])  # here


net = torch.nn.Linear(1, 1)
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
for epoch in range(2):
    for x, y in DataLoader(Squares(23), batch_size=4):
        opt.zero_grad()
        torch.nn.functional.mse_loss(net(x), y).backward()
        opt.step()
    print("epoch", epoch)
