"""The 1,797 handwritten digits of ../digits as two datasets, for the examples beside this file."""

import gzip
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

DATA = Path(__file__).parent.parent / "digits" / "digits.csv.gz"


def load():
    """(to learn from, to test on): pictures of 1x8x8 pixels from 0 to 1,
    and the digit that each one shows."""
    with gzip.open(DATA, "rt") as f:
        rows = torch.tensor([[int(value) for value in line.split(",")] for line in f])
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]
    images, labels = rows[:, :-1].reshape(-1, 1, 8, 8) / 16, rows[:, -1]
    return TensorDataset(images[:1437], labels[:1437]), TensorDataset(images[1437:], labels[1437:])
