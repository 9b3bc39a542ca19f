"""Knowledge distillation on CIFAR-10: train a teacher, then a smaller student with gradient accumulation and EMA weights."""
import argparse
import math
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Config:
    data: str = "./data"
    teacher_epochs: int = 3
    student_epochs: int = 10
    batch_size: int = 32
    accum_steps: int = 2
    temperature: float = 4.0
    alpha: float = 0.7
    ema_decay: float = 0.99
    lr: float = 2e-3
    seed: int = 123


def load_split(folder, names):
    raw = np.concatenate([np.fromfile(os.path.join(folder, n), dtype=np.uint8) for n in names]).reshape(-1, 3073)
    x = torch.from_numpy(raw[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32)) / 127.5 - 1.0
    y = torch.from_numpy(raw[:, 0].astype(np.int64))
    return TensorDataset(x, y)


def augment(x):
    if torch.rand(()) < 0.5:
        x = x.flip(-1)
    dx, dy = torch.randint(-3, 4, (2,)).tolist()
    return torch.roll(x, shifts=(dy, dx), dims=(2, 3))


class ConvNet(nn.Module):
    def __init__(self, channels, num_classes=10):
        super().__init__()
        layers, c_in = [], 3
        for c in channels:
            layers += [nn.Conv2d(c_in, c, 3, padding=1), nn.GroupNorm(4, c), nn.GELU(), nn.MaxPool2d(2)]
            c_in = c
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(c_in, num_classes)

    def forward(self, x):
        return self.head(self.features(x).mean(dim=(2, 3)))


def distillation_loss(student_logits, teacher_logits, labels, T, alpha):
    soft = F.kl_div(F.log_softmax(student_logits / T, dim=1), F.softmax(teacher_logits / T, dim=1), reduction="batchmean")
    return alpha * T * T * soft + (1 - alpha) * F.cross_entropy(student_logits, labels)


@torch.no_grad()
def accuracy(model, loader, device):
    model.eval()
    hits = sum((model(x.to(device)).argmax(1) == y.to(device)).sum().item() for x, y in loader)
    return hits / len(loader.dataset)


def train_teacher(cfg, model, train_loader, test_loader, device):
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    for epoch in range(cfg.teacher_epochs):
        model.train()
        for step, (x, y) in enumerate(train_loader):
            x, y = augment(x.to(device)), y.to(device)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                print(f"teacher epoch {epoch} step {step}/{len(train_loader)} loss {loss.item():.4f}")
        print(f"teacher epoch {epoch} accuracy {accuracy(model, test_loader, device):.4f}")
    return model


def train_student(cfg, student, teacher, train_loader, test_loader, device):
    optimizer = torch.optim.AdamW(student.parameters(), lr=cfg.lr)
    total = math.ceil(len(train_loader) * cfg.student_epochs / cfg.accum_steps)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 0.5 * (1 + math.cos(math.pi * min(1.0, s / total))))
    ema = AveragedModel(student, multi_avg_fn=get_ema_multi_avg_fn(cfg.ema_decay))
    teacher.eval()
    optimizer.zero_grad()
    for epoch in range(cfg.student_epochs):
        student.train()
        running = 0.0
        for step, (x, y) in enumerate(train_loader):
            x, y = augment(x.to(device)), y.to(device)
            with torch.no_grad():
                target = teacher(x)
            loss = distillation_loss(student(x), target, y, cfg.temperature, cfg.alpha)
            (loss / cfg.accum_steps).backward()
            running += loss.item()
            if (step + 1) % cfg.accum_steps == 0 or step + 1 == len(train_loader):
                nn.utils.clip_grad_norm_(student.parameters(), 5.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                ema.update_parameters(student)
        print(f"student epoch {epoch} loss {running / len(train_loader):.4f} acc {accuracy(student, test_loader, device):.4f} "
              f"ema {accuracy(ema, test_loader, device):.4f}")
    return ema.module


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in vars(Config()).items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(default), default=default)
    cfg = Config(**vars(parser.parse_args()))
    torch.manual_seed(cfg.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set = load_split(cfg.data, [f"data_batch_{i}.bin" for i in range(1, 6)])
    test_set = load_split(cfg.data, ["test_batch.bin"])
    train_loader = DataLoader(train_set, batch_size=cfg.batch_size, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=256)

    teacher = train_teacher(cfg, ConvNet([24, 48, 96]).to(device), train_loader, test_loader, device)
    student = train_student(cfg, ConvNet([8, 16, 32]).to(device), teacher, train_loader, test_loader, device)
    torch.save({"student": student.state_dict(), "config": vars(cfg)}, "student.pt")


if __name__ == "__main__":
    main()
