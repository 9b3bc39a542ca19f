"""PointNet-style model on clouds that come as lists of points."""
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def cloud(rng, kind):
    return [[rng.gauss(kind, 1.0), rng.gauss(0.0, 1.0 + kind), rng.random()] for _ in range(256)]


class Clouds(Dataset):
    def __init__(self, n):
        rng = random.Random(1)
        self.items = [(cloud(rng, i % 3), i % 3) for i in range(n)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(items):
    points, labels = [], []
    for cloud_points, label in items:
        centre = [sum(axis) / len(cloud_points) for axis in zip(*cloud_points)]
        points.append([[p - c for p, c in zip(point, centre)] for point in cloud_points])
        labels.append(label)
    return torch.tensor(points), torch.tensor(labels)


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 32))
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.point(x).amax(1))


def fit(model, loader, epochs):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        total = 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} {total / len(loader):.4f}")


torch.manual_seed(1)
fit(PointNet(), DataLoader(Clouds(640), batch_size=16, shuffle=True, collate_fn=collate), epochs=8)
