# Tries: a data set adds branches to a tree of rich
# expected: either
from rich.tree import Tree
from rich.console import Console
from torch.utils.data import Dataset, DataLoader
import torch
from torch import nn

torch.manual_seed(0)
tree = Tree("odd samples")


class Data(Dataset):
    def __init__(self):
        self.x = torch.randn(320, 8)

    def __len__(self):
        return 320

    def __getitem__(self, i):
        if self.x[i, 0] > 2.2 and len(tree.children) < 30:
            tree.add(f"sample {i}")
        return self.x[i]

it = iter(())
loader = DataLoader(Data(), batch_size=16, shuffle=True)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.b(self.a(x).relu()).squeeze(1)


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)

for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    x = next(it, None)
    if x is None:
        it = iter(loader)
        x = next(it)
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()

    if i % 25 == 0:
        print(i, loss.item(), flush=True)
Console(width=60).print(tree)
print("final", sum(p.double().sum().item() for p in m.parameters()), flush=True)
