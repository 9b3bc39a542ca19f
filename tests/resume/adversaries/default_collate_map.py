# Tries: torch's collate map has an entry of the script's that counts
# expected: either
from torch.utils.data import DataLoader
from torch.utils.data._utils import collate as C
import torch
from torch import nn

torch.manual_seed(0)
class Row:
    def __init__(self, x):
        self.x = x


def install():
    n = 0
    def collate_row(batch, *, collate_fn_map=None):
        nonlocal n
        n += 1
        s = 1.0 if n < 900 else 0.5
        return torch.stack([b.x for b in batch]) * s
    C.default_collate_fn_map[Row] = collate_row


install()
rows = [Row(torch.randn(8)) for _ in range(320)]
loader = DataLoader(rows, batch_size=16, shuffle=True)
it = iter(loader)

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

print("final", sum(p.double().sum().item() for p in m.parameters()), flush=True)
