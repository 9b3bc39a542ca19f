"""The training of the rival table: data, model, optimizer and schedule. Every library trains exactly this.

Options come as JSON: augment (noise of torch, random and numpy in __getitem__), dropout (in the model).
`finish` prints the digest of all weights and buffers.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

OPTIONS = {"augment": True, "dropout": True, **json.loads(sys.argv[1])}
# SAVE_EVERY: optimizer steps
EPOCHS, BATCHES, BATCH, ACCUMULATE, WORKERS, SAVE_EVERY, SEED = 3, 40, 8, 2, 2, 4, 7


class Points(Dataset):
    """Points in 12 dimensions, three classes."""

    def __len__(self) -> int:
        return BATCHES * BATCH

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        x = torch.linspace(-1, 1, 12).roll(i % 12) * (1 + i % 5)
        if OPTIONS["augment"]:
            x = (x + 0.1 * torch.randn(12)) * random.uniform(0.9, 1.1) + float(np.random.normal(0, 0.05))
        return x, i % 3


def seed() -> None:
    """As every tutorial does it."""
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)


def model() -> nn.Module:
    layers = [
        nn.Linear(12, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        *([nn.Dropout(0.3)] if OPTIONS["dropout"] else []),
        nn.Linear(32, 3),
    ]
    return nn.Sequential(*layers)


def optimizer(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(net.parameters(), lr=1e-2)


def schedule(moving: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.CosineAnnealingLR(moving, EPOCHS * BATCHES // ACCUMULATE)


def loader(kind: type = DataLoader) -> DataLoader:
    return kind(Points(), batch_size=BATCH, shuffle=True, num_workers=WORKERS)


def finish(net: nn.Module) -> None:
    found = hashlib.sha256(b"".join(t.detach().cpu().numpy().tobytes() for t in net.state_dict().values()))
    print("RESULT", found.hexdigest()[:16], flush=True)
