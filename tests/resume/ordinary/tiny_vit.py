# A vision transformer on random images: warmup and cosine by LambdaLR, bf16 autocast, EMA by AveragedModel, label smoothing, stochastic depth,
# a checkpoint of the best epoch.
# expected: exact
import math
import random
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset, random_split


@dataclass
class Config:
    image_size: int = 16
    patch: int = 4
    dim: int = 32
    depth: int = 2
    heads: int = 4
    classes: int = 5
    drop_path: float = 0.1
    epochs: int = 8
    batch_size: int = 32
    lr: float = 3e-3
    warmup: int = 60
    weight_decay: float = 0.05


cfg = Config()


def seed_everything(seed: int):
    random.seed(seed)
    torch.manual_seed(seed)


class DropPath(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training or self.p == 0.0:
            return x
        mask = x.new_empty((x.shape[0], 1, 1)).bernoulli_(1 - self.p)
        return x * mask / (1 - self.p)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.qkv, self.proj, self.drop = nn.Linear(dim, dim * 3), nn.Linear(dim, dim), nn.Dropout(0.1)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        attn = self.drop((q @ k.transpose(-2, -1) * self.scale).softmax(dim=-1))
        return self.proj((attn @ v).transpose(1, 2).reshape(b, n, c))


class Layer(nn.Module):
    def __init__(self, dim, heads, drop_path):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim), Attention(dim, heads)
        self.norm2, self.mlp = nn.LayerNorm(dim), nn.Sequential(nn.Linear(dim, dim * 2), nn.GELU(), nn.Dropout(0.1), nn.Linear(dim * 2, dim))
        self.drop_path = DropPath(drop_path)

    def forward(self, x):
        x = x + self.drop_path(self.attn(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class ViT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Conv2d(3, cfg.dim, cfg.patch, cfg.patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, cfg.dim))
        self.pos = nn.Parameter(torch.randn(1, (cfg.image_size // cfg.patch) ** 2 + 1, cfg.dim) * 0.02)
        self.layers = nn.ModuleList([Layer(cfg.dim, cfg.heads, cfg.drop_path * i / cfg.depth) for i in range(cfg.depth)])
        self.norm, self.head = nn.LayerNorm(cfg.dim), nn.Linear(cfg.dim, cfg.classes)
        self.apply(self._init)

    @staticmethod
    def _init(m):
        if isinstance(m, nn.Linear):
            nn.init.trunc_normal_(m.weight, std=0.02)
            nn.init.zeros_(m.bias)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.pos
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


def param_groups(model, weight_decay):
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]


def accuracy(output, target, topk=(1, 2)):
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1)
        correct = pred.t().eq(target.view(1, -1))
        return [correct[:k].reshape(-1).float().sum(0).mul_(100.0 / len(target)) for k in topk]


class AverageMeter:
    def __init__(self, name):
        self.name = name
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return f"{self.name} {self.val:.4f} ({self.avg:.4f})"


def train_one_epoch(model, ema, loader, criterion, optimizer, scheduler, epoch, device):
    model.train()
    losses, top1 = AverageMeter("Loss"), AverageMeter("Acc@1")
    for i, (images, target) in enumerate(loader):
        images, target = images.to(device, non_blocking=True), target.to(device, non_blocking=True)
        if random.random() < 0.5:
            images = images.flip(3)
        with torch.autocast(device_type=device.type, dtype=torch.bfloat16):
            output = model(images)
            loss = criterion(output, target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        ema.update_parameters(model)
        acc1, _ = accuracy(output, target)
        losses.update(loss.item(), images.size(0))
        top1.update(acc1.item(), images.size(0))
        if i % 10 == 0:
            print(f"Epoch: [{epoch}][{i}/{len(loader)}]\t{losses}\t{top1}\tlr {scheduler.get_last_lr()[0]:.6f}")
    return losses.avg


@torch.inference_mode()
def evaluate(model, loader, criterion, device):
    model.eval()
    losses, top1, top2 = AverageMeter("Loss"), AverageMeter("Acc@1"), AverageMeter("Acc@2")
    for images, target in loader:
        output = model(images.to(device))
        acc1, acc2 = accuracy(output, target.to(device))
        losses.update(criterion(output, target.to(device)).item(), len(images))
        top1.update(acc1.item(), len(images))
        top2.update(acc2.item(), len(images))
    print(f" * {top1} {top2} {losses}")
    return top1.avg


def main():
    seed_everything(99)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    y = torch.randint(0, cfg.classes, (1200,))
    patterns = torch.randn(cfg.classes, 3, cfg.image_size, cfg.image_size)
    x = patterns[y] * 0.4 + torch.randn(1200, 3, cfg.image_size, cfg.image_size)
    train_set, val_set = random_split(TensorDataset(x, y), [1000, 200], generator=torch.Generator().manual_seed(0))
    train_loader = DataLoader(train_set, cfg.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, 100)
    model = ViT(cfg).to(device)
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99), use_buffers=True)
    optimizer = torch.optim.AdamW(param_groups(model, cfg.weight_decay), lr=cfg.lr, betas=(0.9, 0.95))
    steps = cfg.epochs * len(train_loader)

    def lr_lambda(step):
        if step < cfg.warmup:
            return (step + 1) / cfg.warmup
        return 0.5 * (1 + math.cos(math.pi * (step - cfg.warmup) / (steps - cfg.warmup)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    best_acc = 0.0
    for epoch in range(cfg.epochs):
        train_one_epoch(model, ema, train_loader, criterion, optimizer, scheduler, epoch, device)
        acc = evaluate(ema, val_loader, criterion, device)
        if acc > best_acc:
            best_acc = acc
            torch.save({"epoch": epoch, "model": model.state_dict(), "ema": ema.state_dict(), "optimizer": optimizer.state_dict(),
                        "scheduler": scheduler.state_dict(), "best": best_acc}, "best.pth")
    print(f"best accuracy {best_acc:.3f}")


if __name__ == "__main__":
    main()
