"""Denoising autoencoder on a table of numeric features (row/column statistics of digits), small MLP, AdamW."""
import argparse
import csv
import gzip
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

CONFIG = {
    "seed": 7,
    "batch_size": 64,
    "epochs": 40,
    "lr": 1e-3,
    "weight_decay": 1e-4,
    "noise": 0.1,
    "hidden": [96, 48],
    "bottleneck": 12,
    "val_fraction": 0.1,
    "log_csv": "history.csv",
}


def make_table(folder):
    """One row of statistics per picture: what a feature-engineering notebook would export."""
    with gzip.open(os.path.join(folder, "train-images-idx3-ubyte.gz"), "rb") as f:
        img = np.frombuffer(f.read(), dtype=np.uint8, offset=16).reshape(-1, 28, 28).astype(np.float32) / 255
    rows = img.mean(axis=2)
    cols = img.mean(axis=1)
    quads = np.stack([img[:, a:a + 14, b:b + 14].std(axis=(1, 2)) for a in (0, 14) for b in (0, 14)], axis=1)
    ink = img.sum(axis=(1, 2))[:, None]
    pos = np.arange(28, dtype=np.float32)
    cy = (img.sum(axis=2) @ pos)[:, None] / (ink + 1e-6)
    cx = (img.sum(axis=1) @ pos)[:, None] / (ink + 1e-6)
    X = np.hstack([rows, cols, quads, ink, cy, cx])
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-3)
    return np.clip(X, -5, 5).astype(np.float32)


class AutoEncoder(nn.Module):
    def __init__(self, n_features, hidden, bottleneck):
        super().__init__()
        dims = [n_features] + hidden
        enc, dec = [], []
        for a, b in zip(dims[:-1], dims[1:]):
            enc += [nn.Linear(a, b), nn.LayerNorm(b), nn.SiLU()]
        enc.append(nn.Linear(dims[-1], bottleneck))
        rev = [bottleneck] + hidden[::-1]
        for a, b in zip(rev[:-1], rev[1:]):
            dec += [nn.Linear(a, b), nn.LayerNorm(b), nn.SiLU()]
        dec.append(nn.Linear(rev[-1], n_features))
        self.encoder, self.decoder = nn.Sequential(*enc), nn.Sequential(*dec)

    def forward(self, x):
        return self.decoder(self.encoder(x))


def param_groups(model, weight_decay):
    decay, no_decay = [], []
    for name, p in model.named_parameters():
        (no_decay if p.ndim == 1 or name.endswith("bias") else decay).append(p)
    return [{"params": decay, "weight_decay": weight_decay}, {"params": no_decay, "weight_decay": 0.0}]


class Trainer:
    def __init__(self, model, cfg, device):
        self.model, self.cfg, self.device = model.to(device), cfg, device
        self.optimizer = torch.optim.AdamW(param_groups(model, cfg["weight_decay"]), lr=cfg["lr"])
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, gamma=0.95)
        self.loss_fn = nn.SmoothL1Loss()
        self.history = []

    def train_one_epoch(self, loader):
        self.model.train()
        total = 0.0
        for (x,) in loader:
            x = x.to(self.device)
            noisy = x + self.cfg["noise"] * torch.randn_like(x)
            self.optimizer.zero_grad()
            loss = self.loss_fn(self.model(noisy), x)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / len(loader)

    @torch.no_grad()
    def validate(self, loader):
        self.model.eval()
        return sum(self.loss_fn(self.model(x.to(self.device)), x.to(self.device)).item() for (x,) in loader) / len(loader)

    def fit(self, train_loader, val_loader):
        for epoch in range(1, self.cfg["epochs"] + 1):
            train_loss = self.train_one_epoch(train_loader)
            val_loss = self.validate(val_loader)
            self.scheduler.step()
            self.history.append({"epoch": epoch, "train_loss": train_loss, "val_loss": val_loss})
            print(f"epoch {epoch:3d} | train {train_loss:.5f} | val {val_loss:.5f}")
            self.write_history()

    def write_history(self):
        with open(self.cfg["log_csv"], "w", newline="") as f:
            w = csv.DictWriter(f, fieldnames=["epoch", "train_loss", "val_loss"])
            w.writeheader()
            w.writerows(self.history)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="./data")
    parser.add_argument("--epochs", type=int, default=CONFIG["epochs"])
    parser.add_argument("--rows", type=int, default=None, help="use only the first rows of the table")
    args = parser.parse_args()
    cfg = {**CONFIG, "epochs": args.epochs}

    np.random.seed(cfg["seed"])
    torch.manual_seed(cfg["seed"])

    X = torch.from_numpy(make_table(args.data)[:args.rows])
    print("table:", tuple(X.shape))
    n_val = int(len(X) * cfg["val_fraction"])
    train_ds, val_ds = random_split(TensorDataset(X), [len(X) - n_val, n_val], generator=torch.Generator().manual_seed(cfg["seed"]))
    train_loader = DataLoader(train_ds, batch_size=cfg["batch_size"], shuffle=True)
    val_loader = DataLoader(val_ds, batch_size=512)

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    trainer = Trainer(AutoEncoder(X.shape[1], cfg["hidden"], cfg["bottleneck"]), cfg, device)
    trainer.fit(train_loader, val_loader)
    torch.save(trainer.model.state_dict(), "autoencoder.pt")
