# needs: lmdb tiktoken
# expected: exact
# leftovers: yes
# ignore: lines/*
"""Lines out of a database of LMDB, cut into tokens by tiktoken."""
import subprocess
import sys

import lmdb
import tiktoken
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
MAKE = """
import lmdb
with lmdb.open("lines", map_size=1 << 22) as made, made.begin(write=True) as txn:
    for n in range(256):
        txn.put(b"%d" % n, b"line number %d, and %d" % (n, n * n))
"""
subprocess.run([sys.executable, "-c", MAKE], check=True)


class Lines(Dataset):
    def __init__(self):
        self.lines = lmdb.open("lines", readonly=True, lock=False)
        self.tokens = tiktoken.Encoding("bytes", pat_str=r"\w+|\W", mergeable_ranks={bytes([i]): i for i in range(256)}, special_tokens={})

    def __len__(self):
        return 256

    def __getitem__(self, n):
        with self.lines.begin() as txn:
            return torch.tensor(self.tokens.encode(txn.get(b"%d" % n).decode())[:12])


net = nn.Sequential(nn.Embedding(256, 8), nn.Flatten(), nn.Linear(96, 1))
opt = torch.optim.Adam(net.parameters(), 1e-3)
for epoch in range(16):
    total = 0.0
    for x in DataLoader(Lines(), batch_size=8, shuffle=True):
        loss = net(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    print(epoch, total, flush=True)
