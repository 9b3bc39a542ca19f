"""Contrastive pairs: every other sample of the batch is a negative, so that the batch is part of the loss."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def info_nce(a, b, temperature=0.1):
    a, b = F.normalize(a, dim=1), F.normalize(b, dim=1)
    return F.cross_entropy(a @ b.T / temperature, torch.arange(len(a)))


class Tower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))

    def forward(self, x):
        return self.net(x)


def main():
    torch.manual_seed(126)
    text = torch.randn(1600, 40)
    image = text @ torch.randn(40, 50) + 0.3 * torch.randn(1600, 50)
    loader = DataLoader(TensorDataset(text, image), batch_size=8, shuffle=True, drop_last=True)
    left, right = Tower(40), Tower(50)
    optimizer = torch.optim.Adam([*left.parameters(), *right.parameters()], lr=1e-3)
    for epoch in range(2):
        for a, b in loader:
            loss = info_nce(left(a), right(b))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
