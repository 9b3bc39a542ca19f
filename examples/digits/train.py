"""Learn to read handwritten digits: a small network in plain PyTorch, as one would write it without Stoker.

    python train.py
    python train.py --lr 0.01 --epochs 10
"""

import argparse
import gzip
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DATA = Path(__file__).parent / "digits.csv.gz"


def load_digits(path):
    """1,797 pictures of 8x8 pixels from 0 to 1, and the digit that each one shows;
    one in five is kept for testing."""
    with gzip.open(path, "rt") as f:
        rows = torch.tensor([[int(value) for value in line.split(",")] for line in f])
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]
    images, labels = rows[:, :-1].reshape(-1, 1, 8, 8) / 16, rows[:, -1]
    cut = len(rows) * 4 // 5
    return TensorDataset(images[:cut], labels[:cut]), TensorDataset(images[cut:], labels[cut:])


def build_model():
    """Two convolutions, two linear layers: 105,766 weights."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.3),
        nn.Linear(64 * 4 * 4, 84), nn.ReLU(),
        nn.Linear(84, 10),
    )


def train_one_epoch(model, loader, optimizer, device):
    """The mean loss over one pass."""
    model.train()
    total = 0.0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(labels)
    return total / len(loader.dataset)


@torch.no_grad()
def accuracy(model, loader, device):
    """The share of pictures that are read right, in percent."""
    model.eval()
    right = sum(
        (model(images.to(device)).argmax(1) == labels.to(device)).sum().item() for images, labels in loader
    )
    return 100 * right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description="Learn to read handwritten digits.")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="digits.pt", help="where the weights are saved")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train_set, test_set = load_digits(DATA)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=256)
    model = build_model().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    print(f"{len(train_set)} digits to learn from, {len(test_set)} to test on, on {device}")

    for epoch in range(1, args.epochs + 1):
        started = time.perf_counter()
        loss = train_one_epoch(model, train_loader, optimizer, device)
        score = accuracy(model, test_loader, device)
        seconds = time.perf_counter() - started
        print(
            f"epoch {epoch:2d}/{args.epochs}  loss {loss:.4f}  test accuracy {score:.2f} %  {seconds:.2f} s"
        )
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, args.out
        )

    print(f"final test accuracy {score:.2f} %, weights in {args.out}")


if __name__ == "__main__":
    main()
