"""Image classification from a folder: DATA/train/<class>/*.jpg, with early stopping on a held-out part."""
import argparse
import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

IMAGENET_MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
IMAGENET_STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


class ImageFolder(Dataset):
    def __init__(self, samples, size, augment=False):
        self.samples, self.size, self.augment = samples, size, augment

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, idx):
        path, label = self.samples[idx]
        with Image.open(path) as im:
            im = im.convert("RGB")
        if self.augment:
            side = int(min(im.size) * random.uniform(0.7, 1.0))
            x0, y0 = random.randint(0, im.width - side), random.randint(0, im.height - side)
            im = im.crop((x0, y0, x0 + side, y0 + side))
            if random.random() < 0.5:
                im = im.transpose(Image.FLIP_LEFT_RIGHT)
        im = im.resize((self.size, self.size), Image.BICUBIC)
        x = torch.from_numpy(np.array(im)).permute(2, 0, 1).float().div_(255)
        return (x - IMAGENET_MEAN) / IMAGENET_STD, label


def find_samples(root):
    classes = sorted(d.name for d in root.iterdir() if d.is_dir())
    samples = [(p, i) for i, c in enumerate(classes) for p in sorted((root / c).glob("*.jpg"))]
    return classes, samples


def build_model(num_classes):
    def conv(i, o):
        return [nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True), nn.MaxPool2d(2)]

    return nn.Sequential(*conv(3, 16), *conv(16, 32), *conv(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Dropout(0.2), nn.Linear(64, num_classes))


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.bad = patience, float("inf"), 0

    def step(self, loss):
        if loss < self.best:
            self.best, self.bad = loss, 0
            return True
        self.bad += 1
        return False


def run_epoch(model, loader, criterion, device, optimizer=None):
    training = optimizer is not None
    model.train(training)
    loss_sum, hits, n = 0.0, 0, 0
    with torch.set_grad_enabled(training):
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            logits = model(images)
            loss = criterion(logits, labels)
            if training:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            loss_sum += loss.item() * len(labels)
            hits += (logits.argmax(1) == labels).sum().item()
            n += len(labels)
    return loss_sum / n, hits / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", type=Path, default=Path("./data"))
    ap.add_argument("--epochs", type=int, default=16)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--size", type=int, default=48)
    ap.add_argument("--num-workers", type=int, default=2)
    ap.add_argument("--patience", type=int, default=5)
    args = ap.parse_args()

    random.seed(0)
    torch.manual_seed(0)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")

    classes, samples = find_samples(args.data / "train")
    random.shuffle(samples)
    n_val = len(samples) // 10
    train_set = ImageFolder(samples[n_val:], args.size, augment=True)
    val_set = ImageFolder(samples[:n_val], args.size)
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, num_workers=args.num_workers)
    val_loader = DataLoader(val_set, args.batch_size, num_workers=args.num_workers)
    print(f"{len(train_set)} train / {len(val_set)} val images, {len(classes)} classes")

    model = build_model(len(classes)).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=2)
    stopper = EarlyStopping(args.patience)

    for epoch in range(args.epochs):
        tr_loss, tr_acc = run_epoch(model, train_loader, criterion, device, optimizer)
        va_loss, va_acc = run_epoch(model, val_loader, criterion, device)
        scheduler.step(va_loss)
        improved = stopper.step(va_loss)
        print(f"[{epoch + 1:02d}/{args.epochs}] train {tr_loss:.3f}/{tr_acc:.3f}  val {va_loss:.3f}/{va_acc:.3f}{'  *' if improved else ''}")
        if improved:
            torch.save({"model": model.state_dict(), "classes": classes, "epoch": epoch, "val_acc": va_acc}, "best.pt")
        if stopper.bad >= stopper.patience:
            print("early stopping")
            break

    model.load_state_dict(torch.load("best.pt", map_location=device)["model"])
    test_set = ImageFolder(find_samples(args.data / "test")[1], args.size)
    _, acc = run_epoch(model, DataLoader(test_set, args.batch_size, num_workers=args.num_workers), criterion, device)
    print(f"test accuracy {acc:.4f}")


if __name__ == "__main__":
    main()
