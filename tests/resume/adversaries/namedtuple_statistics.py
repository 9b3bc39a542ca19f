# Tries: a forward keeps its statistics in a namedtuple, a dataclass replaced, an Enum and an array of the library
# expected: exact
import array
import collections
import enum
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)

class Data(Dataset):
    def __init__(self):
        self.x = torch.randn(640, 8)
    def __len__(self):
        return len(self.x)
    def __getitem__(self, i):
        return self.x[i], self.x[i].sum()

Seen = collections.namedtuple("Seen", "n total")
class Stage(enum.Enum):
    WARM = 1
    FULL = 2
counts = array.array("q", [0] * 100)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.n = nn.Linear(8, 32), nn.Linear(32, 1), 0
        self.seen, self.stage = Seen(0, 0.0), Stage.WARM
    def forward(self, x):
        self.n += 1
        self.seen = Seen(self.seen.n + 1, self.seen.total + float(x.sum()))
        self.stage = Stage.FULL if self.n % 2 else Stage.WARM
        counts[self.n % 100] += self.n
        return self.b(self.a(x).relu()) * (1 if self.stage is Stage.FULL else 0.5)

m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
data_loader = DataLoader(Data(), 16, shuffle=True)
step = 0

for epoch in range(40):
    for i, (x, y) in enumerate(data_loader):
        loss = (m(x).squeeze(1) - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        step += 1

        if i % 20 == 0:
            print(epoch, i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), m.seen, m.stage, sum(counts))
