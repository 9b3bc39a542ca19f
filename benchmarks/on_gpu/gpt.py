"""A small GPT on characters, in the style of nanoGPT:
random windows, bfloat16, accumulation, fused AdamW, loss estimates."""

import argparse
import math
import os
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--epochs", type=int, default=10, help="times 50 iterations")
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--width", type=int, default=128)
parser.add_argument("--block", type=int, default=64)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--deterministic", action="store_true")
args = parser.parse_args()

LETTERS, HEADS, ACCUMULATE, INTERVAL = 64, 4, 2, 50
torch.manual_seed(1337)
torch.backends.cuda.matmul.allow_tf32 = True
if args.deterministic:
    torch.use_deterministic_algorithms(True)
gpu = args.device == "cuda"
steps = np.random.default_rng(5).integers(-2, 3, 200_000)
text = np.cumsum(steps).astype(np.int64) % LETTERS


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.back = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, HEADS, c // HEADS).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(c, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0, is_causal=True)
        x = x + self.dropout(self.out(y.transpose(1, 2).reshape(b, t, c)))
        return x + self.dropout(self.back(F.gelu(self.wide(self.norm2(x)))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(LETTERS, args.width)
        self.places = nn.Embedding(args.block, args.width)
        self.blocks = nn.ModuleList([Block(args.width) for _ in range(args.layers)])
        self.norm = nn.LayerNorm(args.width)
        self.head = nn.Linear(args.width, LETTERS, bias=False)
        nn.init.normal_(self.letters.weight, std=0.02)
        self.head.weight = self.letters.weight

    def forward(self, x, y):
        h = self.letters(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        logits = self.head(self.norm(h))
        return F.cross_entropy(logits.view(-1, LETTERS), y.view(-1))


def get_batch():
    starts = torch.randint(len(text) - args.block, (args.batch,))
    x = torch.stack([torch.from_numpy(text[i : i + args.block]) for i in starts])
    y = torch.stack([torch.from_numpy(text[i + 1 : i + 1 + args.block]) for i in starts])
    if gpu:
        return x.pin_memory().to(args.device, non_blocking=True), y.pin_memory().to(
            args.device, non_blocking=True
        )
    return x, y


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = torch.zeros(5)
    for k in range(5):
        with torch.autocast(args.device, dtype=torch.bfloat16):
            losses[k] = model(*get_batch()).item()
    model.train()
    return losses.mean()


model = GPT().to(args.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, fused=gpu)
iterations = args.epochs * INTERVAL
best = 1e9
x, y = get_batch()
began = time.time()
for iteration in range(iterations):
    rate = 1e-3 * min((iteration + 1) / 100, 0.55 + 0.45 * math.cos(math.pi * iteration / iterations))
    for group in optimizer.param_groups:
        group["lr"] = rate
    for _ in range(ACCUMULATE):
        with torch.autocast(args.device, dtype=torch.bfloat16):
            loss = model(x, y) / ACCUMULATE
        x, y = get_batch()
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if iteration % 10 == 9:
        print(f"iter {iteration}: loss {loss.item() * ACCUMULATE:.6f}", flush=True)
    if iteration % INTERVAL == INTERVAL - 1:
        found = estimate_loss()
        print(
            f"epoch {iteration // INTERVAL + 1}: val loss {found:.6f} ({time.time() - began:.3f} s)",
            flush=True,
        )
        began = time.time()
        if found < best:
            best = found
            torch.save({"model": model.state_dict(), "iteration": iteration}, "ckpt.pt")
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "model.pt")
