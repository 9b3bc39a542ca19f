"""A training that waits for its data: each sample is made on the CPU with random noise,
and no workers are asked for."""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--epochs", type=int, default=1000)
args = parser.parse_args()
torch.set_num_threads(1)


class Noisy(Dataset):
    def __init__(self, count):
        self.small = torch.rand(count, 1, 3, 48, 48, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.small)

    def __getitem__(self, index):
        angle = 0.3 * torch.randn(())
        turn = torch.stack(
            [
                torch.stack([angle.cos(), -angle.sin(), torch.zeros(())]),
                torch.stack([angle.sin(), angle.cos(), torch.zeros(())]),
            ]
        )
        grid = F.affine_grid(turn[None], [1, 3, 64, 64], align_corners=False)
        picture = F.grid_sample(self.small[index], grid, align_corners=False)[0]
        for _ in range(6):
            picture = F.avg_pool2d(picture[None], 3, 1, 1)[0] + 0.05 * torch.randn(3, 64, 64)
        return picture, index % 10


torch.manual_seed(0)
loader = DataLoader(Noisy(1280), batch_size=64, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(3, 32, 5, 2),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.Conv2d(32, 64, 3, 2),
    nn.BatchNorm2d(64),
    nn.ReLU(),
    nn.Conv2d(64, 128, 3, 2),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(4608, 10),
).to(args.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(1, args.epochs + 1):
    began = time.time()
    for pictures, labels in loader:
        loss = F.cross_entropy(model(pictures.to(args.device)), labels.to(args.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f} ({time.time() - began:.3f} s)", flush=True)
