# Small ResNet on CIFAR-10 (binary version), SGD + momentum + OneCycle.
import argparse
import csv
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MEAN = np.array([0.4914, 0.4822, 0.4465], dtype=np.float32).reshape(3, 1, 1)
STD = np.array([0.2470, 0.2435, 0.2616], dtype=np.float32).reshape(3, 1, 1)


class CIFAR10Bin(Dataset):
    def __init__(self, root, train=True):
        root = Path(root)
        files = sorted(root.glob("data_batch_*.bin")) if train else [root / "test_batch.bin"]
        raw = np.concatenate([np.fromfile(f, dtype=np.uint8).reshape(-1, 3073) for f in files])
        self.labels = raw[:, 0].astype(np.int64)
        self.images = raw[:, 1:].reshape(-1, 3, 32, 32)
        self.train = train

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        img = self.images[i].astype(np.float32) / 255.0
        img = (img - MEAN) / STD
        if self.train:
            # random crop with padding 4
            img = np.pad(img, ((0, 0), (4, 4), (4, 4)), mode="reflect")
            top, left = np.random.randint(0, 9), np.random.randint(0, 9)
            img = img[:, top:top + 32, left:left + 32]
            # random horizontal flip
            if np.random.rand() < 0.5:
                img = img[:, :, ::-1]
        return torch.from_numpy(np.ascontiguousarray(img)), self.labels[i]


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.shortcut = nn.Sequential()
        if stride != 1 or cin != cout:
            self.shortcut = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.shortcut(x))


class ResNetSmall(nn.Module):
    def __init__(self, width=12, num_classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.layer1 = BasicBlock(width, width)
        self.layer2 = BasicBlock(width, 2 * width, 2)
        self.layer3 = BasicBlock(2 * width, 4 * width, 2)
        self.fc = nn.Linear(4 * width, num_classes)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.stem(x))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    correct = total = 0
    for x, y in loader:
        pred = model(x.to(device)).argmax(1).cpu()
        correct += (pred == y).sum().item()
        total += len(y)
    return correct / total


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", type=str, default="./data")
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--max-lr", type=float, default=0.1)
    p.add_argument("--wd", type=float, default=5e-4)
    p.add_argument("--workers", type=int, default=0)
    args = p.parse_args()

    np.random.seed(42)
    torch.manual_seed(42)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train_loader = DataLoader(CIFAR10Bin(args.data, True), args.batch_size, shuffle=True,
                              num_workers=args.workers, pin_memory=device == "cuda", drop_last=True)
    test_loader = DataLoader(CIFAR10Bin(args.data, False), 256, num_workers=args.workers)

    model = ResNetSmall().to(device)
    print(f"params: {sum(p.numel() for p in model.parameters()):,}")
    opt = torch.optim.SGD(model.parameters(), lr=args.max_lr, momentum=0.9, weight_decay=args.wd, nesterov=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=args.max_lr, epochs=args.epochs, steps_per_epoch=len(train_loader))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    with open("log.csv", "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["epoch", "lr", "train_loss", "test_acc", "seconds"])
        for epoch in range(args.epochs):
            model.train()
            t0, running = time.time(), 0.0
            for x, y in train_loader:
                x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
                loss = criterion(model(x), y)
                opt.zero_grad(set_to_none=True)
                loss.backward()
                opt.step()
                sched.step()
                running += loss.item()
            acc = evaluate(model, test_loader, device)
            row = [epoch, sched.get_last_lr()[0], running / len(train_loader), acc, time.time() - t0]
            writer.writerow(row)
            f.flush()
            print("epoch {:2d}  lr {:.4f}  loss {:.4f}  acc {:.4f}  {:.1f}s".format(*row))


if __name__ == "__main__":
    main()
