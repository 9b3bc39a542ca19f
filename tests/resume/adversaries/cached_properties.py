# Tries: cached properties of a module and of a data set, asked for the first time in training
# expected: exact
import functools

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Vocabulary:
    def __init__(self, words):
        self.words = words

    @functools.cached_property
    def index(self):
        return {word: n for n, word in enumerate(self.words)}


class Data(Dataset):
    def __init__(self):
        self.x = torch.randn(320, 8)

    @functools.cached_property
    def vocabulary(self):
        return Vocabulary([f"w{n}" for n in range(7)])

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.x[i].sum() + 0.1 * self.vocabulary.index[f"w{i % 7}"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)

    @functools.cached_property
    def mask(self):
        return (torch.rand(32) > 0.2).float()

    def forward(self, x):
        return self.b(self.a(x).relu() * self.mask).squeeze(1)


m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
loader = DataLoader(Data(), 16, shuffle=True)
for epoch in range(60):
    for i, (x, y) in enumerate(loader):
        loss = (m(x) - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        if i % 10 == 0:
            print(epoch, i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), m.mask.sum().item())
