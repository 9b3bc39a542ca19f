"""Trains a wide autoencoder on a machine that once ran out of memory."""
import gc

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


def get_data(n=3840, d=64):
    base = torch.randn(n, 4)
    return base @ torch.randn(4, d) + 0.05 * torch.randn(n, d)


def train_epoch(model, loader, opt):
    total = 0.0
    for (x,) in loader:
        opt.zero_grad()
        out = model(x)
        loss = ((out - x) ** 2).mean()
        loss.backward()
        opt.step()
        total += loss.item()
        del out, loss, x
        gc.collect()
    return total / len(loader)


torch.manual_seed(6)
loader = DataLoader(TensorDataset(get_data()), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8), nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 64))
opt = optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(2):
    print(f"epoch {epoch + 1}: {train_epoch(model, loader, opt):.5f}")
