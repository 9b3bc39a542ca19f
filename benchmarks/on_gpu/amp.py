"""A small residual network with mixed precision:
autocast, GradScaler, cudnn.benchmark, pinned memory, OneCycleLR, clipping."""

import argparse
import os
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--samples", type=int, default=6400)
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--width", type=int, default=32)
parser.add_argument("--deterministic", action="store_true")
args = parser.parse_args()

torch.manual_seed(2)
gpu = args.device == "cuda"
if args.deterministic:
    torch.use_deterministic_algorithms(True)
else:
    torch.backends.cudnn.benchmark = True


class Block(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.short = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.short(x))


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            Block(3, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2)
        )
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(4 * width, 10)

    def forward(self, x):
        return self.head(self.dropout(self.body(x).mean((2, 3))))


labels = torch.randint(0, 10, (args.samples,))
pictures = torch.randn(args.samples, 3, 32, 32) + labels[:, None, None, None] * 0.1
loader = DataLoader(
    TensorDataset(pictures, labels),
    batch_size=64,
    shuffle=True,
    num_workers=args.workers,
    pin_memory=gpu,
    drop_last=True,
)
model = Net(args.width).to(args.device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=args.epochs * len(loader))
scaler = torch.amp.GradScaler(args.device, enabled=gpu)
half = torch.float16 if gpu else torch.bfloat16

for epoch in range(1, args.epochs + 1):
    began = time.time()
    total = torch.zeros((), device=args.device)
    for images, targets in loader:
        images = images.to(args.device, non_blocking=True, memory_format=torch.channels_last)
        targets = targets.to(args.device, non_blocking=True)
        with torch.autocast(args.device, dtype=half):
            loss = F.cross_entropy(model(images), targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        scheduler.step()
        total += loss.detach()
    print(
        f"epoch {epoch}: loss {total.item() / len(loader):.6f} norm {norm.item():.4f} scale "
        f"{scaler.get_scale():.0f} "
        f"({time.time() - began:.3f} s)",
        flush=True,
    )
torch.save(
    {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()},
    "model.pt",
)
