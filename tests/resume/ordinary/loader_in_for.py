# The loader is made where it is read, and nothing else holds it or its data set; a sampler of its own shuffles within buckets.
# expected: exact
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

torch.manual_seed(3)
random.seed(3)


class Points(Dataset):
    def __init__(self, count, noise):
        self.x, self.noise = torch.randn(count, 8), noise
        self.y = (self.x[:, 0] * self.x[:, 1] > 0).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] + self.noise * torch.randn(8), self.y[i]


class Buckets(Sampler):
    def __init__(self, count):
        self.buckets = [list(range(i, i + 20)) for i in range(0, count, 20)]

    def __len__(self):
        return len(self.buckets)

    def __iter__(self):
        random.shuffle(self.buckets)
        for bucket in self.buckets:
            random.shuffle(bucket)
            yield bucket


def accuracy(model):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in DataLoader(Points(100, 0.0), batch_size=50):
            right += (model(x).argmax(1) == y).sum().item()
    model.train()
    return right / 100


model = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(6):
    total = 0.0
    for x, y in DataLoader(Points(2000, 0.05), num_workers=2 if epoch % 2 else 0, batch_sampler=Buckets(2000)):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"{epoch} loss {total / 100:.6f} accuracy {accuracy(model):.3f}", flush=True)
