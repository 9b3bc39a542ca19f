# Segmentation head on the accelerator. Memory was tight in the first version.
import os
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import accelerator as device


def free_memory():
    device.empty_cache()


class Head(nn.Module):
    def __init__(self, channels=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(channels, channels), nn.GELU(), nn.Linear(channels, 21))

    def forward(self, x):
        return self.net(x)


if __name__ == "__main__":
    device.configure(fixed_ms=3, sample_ms=0.06)
    torch.manual_seed(66)
    features = torch.randn(4096, 64)
    masks = features[:, :21].argmax(1)
    head = device.prepare(Head())
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(features, masks), batch_size=32, shuffle=True)
    for epoch in range(6):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(head(device.put(x)), device.put(y))
            loss.backward()
            optimizer.step()
            free_memory()
        print("epoch", epoch, "loss", float(loss))
