"""Leaf measurements, one file each, on a remote disk whose every open takes two milliseconds."""
import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

LATENCY = 0.002


def make_files(folder, count):
    rng = np.random.default_rng(11)
    for i in range(count):
        np.concatenate([[i % 5], rng.normal(i % 5, 1.0, 63)]).astype(np.float32).tofile(folder / f"leaf_{i:05d}.bin")


def remote_read(path):
    time.sleep(LATENCY)
    with open(path, "rb") as f:
        data = f.read()
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return data


class LeafFiles(Dataset):
    def __init__(self, folder):
        self.files = sorted(folder.glob("*.bin"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        row = np.frombuffer(remote_read(self.files[i]), dtype=np.float32)
        return torch.from_numpy(row[1:].copy()), int(row[0])


def run(args):
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder), args.count)
        loader = DataLoader(LeafFiles(Path(folder)), batch_size=args.batch, shuffle=True)
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(63, 256), torch.nn.ReLU(), torch.nn.Linear(256, 5))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
        for epoch in range(args.epochs):
            for x, y in loader:
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch} last loss {loss.item():.4f}")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--count", type=int, default=800)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--epochs", type=int, default=6)
    run(p.parse_args())
