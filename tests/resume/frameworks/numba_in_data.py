# needs: numba
# expected: exact
"""A data set whose samples are made by a function that numba compiles at the first of them."""
import numba
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


@numba.njit
def wave(n, out):
    for i in range(out.shape[0]):
        out[i] = np.sin(n * 0.1 + i)


class Waves(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, n):
        out = np.zeros(8, dtype=np.float32)
        wave(n, out)
        return torch.from_numpy(out)


net = nn.Linear(8, 1)
opt = torch.optim.Adam(net.parameters(), 1e-3)
for epoch in range(16):
    total = 0.0
    for x in DataLoader(Waves(), batch_size=8, shuffle=True):
        loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    print(epoch, total, flush=True)
