# Tells circles from squares: 32x32 pictures drawn on the fly, small CNN.
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader


class Shapes(Dataset):
    """Each picture is drawn from its index: kind, centre and size."""

    def __init__(self, n, side=32):
        self.n, self.side = n, side

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        kind, cx, cy, r = i % 2, 8 + i * 7 % 16, 8 + i * 5 % 16, 3 + i % 5
        rows = []
        for y in range(self.side):
            row = []
            for x in range(self.side):
                dx, dy = abs(x - cx), abs(y - cy)
                inside = dx * dx + dy * dy < r * r if kind else max(dx, dy) < r
                row.append(1.0 if inside else 0.0)
            rows.append(row)
        return torch.tensor(rows)[None], kind


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, stride=2)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2)
        self.fc = nn.Linear(16 * 7 * 7, 2)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.fc(x.flatten(1))


def train(model, loader, optimizer, epoch):
    model.train()
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: loss {total / len(loader):.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    torch.manual_seed(1)
    loader = DataLoader(Shapes(4096), batch_size=args.batch_size, shuffle=True)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    for epoch in range(1, args.epochs + 1):
        train(model, loader, optimizer, epoch)


if __name__ == "__main__":
    main()
