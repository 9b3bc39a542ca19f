"""Siamese network with contrastive loss (Hadsell et al. 2006) on random MNIST pairs."""
import argparse
import gzip
import logging
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")


def load_mnist(root, kind):
    with gzip.open(os.path.join(root, f"{kind}-labels-idx1-ubyte.gz")) as f:
        labels = np.frombuffer(f.read(), dtype=np.uint8, offset=8)
    with gzip.open(os.path.join(root, f"{kind}-images-idx3-ubyte.gz")) as f:
        images = np.frombuffer(f.read(), dtype=np.uint8, offset=16).reshape(len(labels), 28, 28)
    return images, labels


class SiameseMNIST(Dataset):
    """Train: for each item a random positive or negative partner, anew each time. Test: fixed pairs."""

    def __init__(self, images, labels, train=True, length=20000):
        self.images, self.labels, self.train, self.length = images, labels, train, length
        self.label_set = sorted(set(labels.tolist()))
        self.label_to_indices = {lab: np.where(labels == lab)[0] for lab in self.label_set}
        if not train:
            rng = np.random.RandomState(29)
            self.pairs = []
            for i in range(length):
                same = i % 2
                lab = labels[i] if same else rng.choice([c for c in self.label_set if c != labels[i]])
                self.pairs.append((i, rng.choice(self.label_to_indices[lab]), same))

    def __len__(self):
        return self.length

    def _img(self, i):
        return torch.from_numpy((self.images[i].astype(np.float32) / 255.0 - 0.1307) / 0.3081).unsqueeze(0)

    def __getitem__(self, index):
        if not self.train:
            i, j, same = self.pairs[index]
            return self._img(i), self._img(j), torch.tensor(same, dtype=torch.float32)
        i = random.randrange(len(self.images))
        same = random.randint(0, 1)
        lab = int(self.labels[i])
        if not same:
            lab = random.choice([c for c in self.label_set if c != lab])
        j = random.choice(self.label_to_indices[lab])
        return self._img(i), self._img(j), torch.tensor(same, dtype=torch.float32)


class EmbeddingNet(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.convnet = nn.Sequential(nn.Conv2d(1, 16, 5), nn.PReLU(), nn.MaxPool2d(2, stride=2),
                                     nn.Conv2d(16, 32, 5), nn.PReLU(), nn.MaxPool2d(2, stride=2))
        self.fc = nn.Sequential(nn.Linear(32 * 4 * 4, 128), nn.PReLU(), nn.Linear(128, dim))

    def forward(self, x):
        return self.fc(self.convnet(x).flatten(1))


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=1.0):
        super().__init__()
        self.margin, self.eps = margin, 1e-9

    def forward(self, e1, e2, same):
        d2 = (e2 - e1).pow(2).sum(1)
        losses = 0.5 * (same * d2 + (1 - same) * F.relu(self.margin - (d2 + self.eps).sqrt()).pow(2))
        return losses.mean()


def train_epoch(loader, net, criterion, optimizer, scheduler, device, log_interval):
    net.train()
    losses = []
    for step, (a, b, same) in enumerate(loader):
        a, b, same = a.to(device), b.to(device), same.to(device)
        optimizer.zero_grad()
        loss = criterion(net(a), net(b), same)
        loss.backward()
        nn.utils.clip_grad_value_(net.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        if step % log_interval == 0:
            logging.info("step %d/%d  loss %.4f  lr %.2e", step, len(loader), np.mean(losses[-log_interval:]), scheduler.get_last_lr()[0])
    return float(np.mean(losses))


@torch.no_grad()
def test_epoch(loader, net, margin, device):
    net.eval()
    right = count = 0
    for a, b, same in loader:
        dist = F.pairwise_distance(net(a.to(device)), net(b.to(device))).cpu()
        right += ((dist < margin / 2).float() == same).sum().item()
        count += len(same)
    return right / count


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default=os.environ.get("DATA", "./data"))
    parser.add_argument("--epochs", default=5, type=int)
    parser.add_argument("--pairs", default=20000, type=int, help="training pairs of an epoch")
    parser.add_argument("-b", "--batch-size", default=64, type=int)
    parser.add_argument("--margin", default=1.0, type=float)
    opts = parser.parse_args()

    random.seed(2024)
    torch.manual_seed(2024)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_dl = DataLoader(SiameseMNIST(*load_mnist(opts.data, "train"), length=opts.pairs), opts.batch_size, shuffle=True, drop_last=True)
    test_dl = DataLoader(SiameseMNIST(*load_mnist(opts.data, "t10k"), train=False, length=2000), 200)

    net = EmbeddingNet().to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=opts.epochs * len(train_dl))
    for epoch in range(opts.epochs):
        loss = train_epoch(train_dl, net, ContrastiveLoss(opts.margin), optimizer, scheduler, device, log_interval=100)
        acc = test_epoch(test_dl, net, opts.margin, device)
        logging.info("epoch %d  train loss %.4f  pair accuracy %.4f", epoch, loss, acc)
        torch.save({"epoch": epoch, "net": net.state_dict(), "optimizer": optimizer.state_dict()}, f"siamese_{epoch}.pt")
