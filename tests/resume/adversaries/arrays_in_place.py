# Tries: a forward, a hook and a data set count in arrays of numpy, in place, and the loop goes by what stands there
# expected: exact
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
seen = np.zeros((4, 2), dtype=np.float32)


class Rows(Dataset):
    def __init__(self):
        self.x = torch.randn(400, 4)
        self.reads = np.zeros(400, dtype=np.int64)

    def __len__(self):
        return 400

    def __getitem__(self, n):
        self.reads[n] += 1
        return self.x[n]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.sums = np.full(3, np.nan)
        self.calls = np.zeros((), dtype=np.uint8)

    def forward(self, x):
        self.calls += 1
        self.sums[int(self.calls) % 3] = float(self.calls) / 7
        return self.layer(x)


def count(module, args, out):
    seen[len(args[0]) % 4, ::2] -= 0.5


rows, net = Rows(), Net()
net.register_forward_hook(count)
o = torch.optim.SGD(net.parameters(), 0.01)
for epoch in range(10):
    for x in DataLoader(rows, 4, shuffle=True):
        loss = net(x).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        if net.calls % 50 == 3 and net.sums[0] > 1 and seen[0, 0] < -20:
            print(epoch, int(net.calls), net.sums, seen[0], rows.reads.max(), loss.item())
            o.param_groups[0]["lr"] *= 0.99 if rows.reads[7] > epoch else 1.01
    print(epoch, loss.item(), rows.reads.sum())
