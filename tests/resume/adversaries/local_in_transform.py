# Tries: a transform makes what it keeps for its thread when it first runs, and counts there; the loop goes by that
# expected: exact
import threading

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Turned:
    def __call__(self, x):
        if not hasattr(self, "_own"):
            self._own = threading.local()
            self._own.turns, self._own.told = 0, ["first"]
        self._own.turns += 1
        if self._own.turns % 100 == 0:
            self._own.told.append(f"{self._own.turns} turns")
        return x.flip(0) if self._own.turns % 3 else x


class Rows(Dataset):
    def __init__(self):
        self.x, self.turned = torch.randn(200, 4), Turned()

    def __len__(self):
        return 200

    def __getitem__(self, n):
        return self.turned(self.x[n])


rows, net = Rows(), nn.Linear(4, 1)
o = torch.optim.SGD(net.parameters(), 0.01)
for epoch in range(20):
    for x in DataLoader(rows, 4, shuffle=True):
        loss = net(x).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
    print(epoch, loss.item())
print("final", rows.turned._own.turns, rows.turned._own.told[-1], net.weight.sum().item())
