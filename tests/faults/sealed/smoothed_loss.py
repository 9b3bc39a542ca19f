"""Trains on a smoothed loss, which looks calmer in the plots."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Smooth:
    def __init__(self, keep):
        self.keep, self.value = keep, None

    def update(self, loss):
        self.value = loss if self.value is None else self.keep * self.value + (1 - self.keep) * loss
        return self.value


def main():
    torch.manual_seed(36)
    x = torch.randn(4000, 20)
    y = x.pow(2).sum(1, keepdim=True)
    loader = DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True)
    encoder = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
    head = nn.Linear(64, 1)
    for p in encoder.parameters():
        p.requires_grad_(True)
    optimizer = torch.optim.SGD([head.bias], lr=1e-3)
    for epoch in range(2):
        smooth = Smooth(0.9)
        for a, b in loader:
            loss = nn.functional.mse_loss(head(encoder(a)), b)
            shown = smooth.update(loss)
            optimizer.zero_grad()
            shown.backward(retain_graph=True)
            optimizer.step()
        print(f"epoch {epoch} smoothed loss {shown.item():.4f}")


if __name__ == "__main__":
    main()
