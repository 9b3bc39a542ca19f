"""Fits a price model and watches a validation set so as to stop in time."""
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def evaluate(model, loader):
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            total += nn.functional.l1_loss(model(x).squeeze(1), y, reduction="sum").item()
    model.train()
    return total / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check-every", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(28)
    x = torch.randn(6000, 64)
    data = TensorDataset(x, x[:, 0] * x[:, 1] + x[:, 2])
    train, val = random_split(data, [4800, 1200])
    train_loader, val_loader = DataLoader(train, batch_size=48, shuffle=True), DataLoader(val, batch_size=48)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best, step = float("inf"), 0
    for epoch in range(args.epochs):
        for a, b in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.l1_loss(model(a).squeeze(1), b)
            loss.backward()
            optimizer.step()
            step += 1
            if step % args.check_every == 0:
                best = min(best, evaluate(model, val_loader))
        print(f"epoch {epoch} best {best:.4f}")


if __name__ == "__main__":
    main()
