# Letters on a disk in the attic: a read is slow, whatever its size.
import argparse
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class SlowFile:
    """One big file; each read waits for the disk."""

    def __init__(self, path, record):
        self.path, self.record = path, record

    def read(self, number):
        time.sleep(0.003)
        return np.fromfile(self.path, dtype=np.uint8, count=self.record, offset=number * self.record)


class Letters(Dataset):
    def __init__(self, path, n):
        self.file, self.n = SlowFile(path, 257), n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        record = self.file.read(i)
        return torch.from_numpy(record[1:]).float().div(255), int(record[0])


parser = argparse.ArgumentParser()
parser.add_argument("--letters", type=int, default=1200)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--workers", type=int, default=0)
a = parser.parse_args()
with tempfile.NamedTemporaryFile(suffix=".letters") as f:
    rng = np.random.default_rng(0)
    table = rng.integers(0, 256, (a.letters, 257), dtype=np.uint8)
    table[:, 0] = table[:, 1] % 26
    table.tofile(f.name)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 26))
    opt = torch.optim.SGD(net.parameters(), 0.05)
    loader = DataLoader(Letters(f.name, a.letters), batch_size=12, shuffle=True, num_workers=a.workers, persistent_workers=a.workers > 0)
    for epoch in range(a.epochs):
        for x, y in loader:
            opt.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
        print(epoch, loss.item())
