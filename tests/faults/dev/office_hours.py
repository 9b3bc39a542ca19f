"""An ordinary MLP on synthetic sensor data, everything in memory."""
import argparse

import torch
from torch import nn


def batches(x, y, size, generator):
    for part in torch.randperm(len(x), generator=generator).split(size):
        yield x[part], y[part]


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
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_sampler=torch.utils.data.BatchSampler(
        torch.utils.data.RandomSampler(range(len(x)), generator=generator), 256, False))
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
