# Tries: a forward and a data set name things of libraries that never change: a numpy function, a dtype, aliases of types, a zone of time
# expected: exact
# short: yes
import datetime
import types
import zoneinfo

import numpy as np
import torch
from numpy import mean as npmean
from torch import nn

torch.manual_seed(0)
Number = int | float
Sizes = list[int]
UTC = zoneinfo.ZoneInfo("UTC")


class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.dtype = np.dtype("float32")
        self.x = np.random.RandomState(0).rand(256, 8)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i].astype(self.dtype))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 1)

    def forward(self, x, scale=1.0):
        assert isinstance(scale, Number) and isinstance(Sizes, types.GenericAlias)
        day = datetime.datetime.fromtimestamp(86400, UTC).day
        return self.out(x) * scale * float(npmean([1.0, day]))


net = Net()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for epoch in range(8):
    total = 0.0
    for x in torch.utils.data.DataLoader(Data(), batch_size=8, shuffle=True):
        loss = net(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    print(epoch, total, flush=True)
