"""A stream in a package, read by workers that stay; the last shard is cut."""
import struct

import torch
from torch.utils.data import DataLoader

from workerslib import Stream

torch.manual_seed(0)
shards = [struct.pack("<6f", *range(6)), struct.pack("<6f", *range(6)), struct.pack("<3f", 1, 2, 3) + b"\0\0"]
loader = DataLoader(Stream(shards), batch_size=3, num_workers=1, prefetch_factor=2, persistent_workers=True)
model = torch.nn.Linear(1, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for i, x in enumerate(loader):
    opt.zero_grad()
    loss = model(x).abs().mean()
    loss.backward()
    opt.step()
    print(f"{i}: {tuple(x.shape)}")
