# Tries: a cached function gives the one meter of a name (a dict); a trainer keeps it from set-up, a forward asks for it and counts
# expected: exact
import functools
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

@functools.lru_cache(maxsize=None)
def meter(name):
    return {"n": 0, "last": []}
class Trainer:
    def __init__(self):
        self.meter = meter("train")
trainer = Trainer()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.n = nn.Linear(8, 32), nn.Linear(32, 1), 0
    def forward(self, x):
        kept = meter("train")
        kept["n"] += 1
        kept["last"] = [*kept["last"][-3:], kept["n"]]
        return self.b(self.a(x).relu())

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
print("final", sum(p.double().sum().item() for p in m.parameters()), trainer.meter, trainer.meter is meter('train'))
