# ruff: noqa
"""DataParallel over all GPUs of one process."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda:0" if torch.cuda.is_available() else "cpu"
assert device != "cpu" and torch.cuda.device_count() > 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 1))
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        print("inside on", x.device, flush=True)
        return self.body(x) * self.scale + torch.zeros(1, device=x.device)


model = nn.DataParallel(Net()).to(device)
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(130, 10), torch.randn(130, 1)), batch_size=31, shuffle=True)
for epoch in range(20):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("epoch", epoch, loss.item(), model.module.scale.device)
