# A denoising autoencoder with worker processes that add noise, a dataclass of settings, best model kept.
# expected: exact
from dataclasses import asdict, dataclass
import json
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


@dataclass
class Config:
    seed: int = 3
    epochs: int = 6
    batch_size: int = 20
    lr: float = 2e-3
    noise: float = 0.2
    workers: int = 2


class Waves(Dataset):
    def __init__(self, n, noise):
        t = torch.linspace(0, 6.28, 40)
        self.clean = torch.stack([torch.sin(t * (1 + i % 5) + i) for i in range(n)])
        self.noise = noise

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, i):
        return self.clean[i] + self.noise * torch.randn(40), self.clean[i]


def run(cfg):
    torch.manual_seed(cfg.seed)
    train, val = random_split(Waves(1400, cfg.noise), [1200, 200])
    train = DataLoader(train, cfg.batch_size, shuffle=True, num_workers=cfg.workers)
    val = DataLoader(val, 100)
    model = nn.Sequential(nn.Linear(40, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 40))
    opt = torch.optim.RMSprop(model.parameters(), lr=cfg.lr)
    best, history = float("inf"), []
    for epoch in range(cfg.epochs):
        model.train()
        total = 0.0
        for noisy, clean in train:
            loss = nn.functional.mse_loss(model(noisy), clean)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(noisy)
        model.eval()
        with torch.no_grad():
            score = sum(nn.functional.mse_loss(model(a), b).item() for a, b in val) / len(val)
        history.append({"epoch": epoch, "train": total / 1200, "val": score})
        if score < best:
            best = score
            torch.save({"model": model.state_dict(), "config": asdict(cfg), "epoch": epoch}, "best.pt")
        with open("history.json", "w") as f:
            json.dump(history, f, indent=1)
        print(history[-1], "best", round(best, 6), flush=True)


if __name__ == "__main__":
    run(Config())
