"""An ordinary MLP on synthetic sensor data, everything in memory."""
import argparse

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def build(width):
    return nn.Sequential(nn.Linear(96, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 6))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--width", type=int, default=384)
    args = parser.parse_args()
    torch.manual_seed(8)
    generator = torch.Generator().manual_seed(8)
    x = torch.randn(12800, 96, generator=generator)
    y = x[:, :6].argmax(1)
    order = BatchSampler(RandomSampler(range(len(x)), generator=generator), 256, drop_last=False)
    data = DataLoader(TensorDataset(x, y), sampler=order, batch_size=None)
    model = build(args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(args.epochs):
        losses = torch.zeros(())
        for a, b in data:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(a), b)
            loss.backward()
            optimizer.step()
            losses += loss.detach()
        print(f"epoch {epoch} loss {losses.item() / len(data):.4f}")


if __name__ == "__main__":
    main()
