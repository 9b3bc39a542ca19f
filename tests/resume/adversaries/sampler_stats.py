# Tries: a sampler counts what it gave out in a table of the script
# expected: either
import torch
from torch import nn
from collections import Counter
torch.manual_seed(0)

usage = Counter()


class Order(torch.utils.data.Sampler):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        for k in torch.randperm(self.n).tolist():
            usage[k % 10] += 1
            yield k

    def __len__(self):
        return self.n
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1

        return self.b(self.a(x).relu()).squeeze(1)


X = torch.randn(320, 8)
data = torch.utils.data.TensorDataset(X)
loader = torch.utils.data.DataLoader(data, batch_size=16, sampler=Order(320))
def batches():
    while True:
        yield from loader
it = batches()
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1600):
    x, = next(it)
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()

    if i % 25 == 0:
        print(i, loss.item(), flush=True)

print("final", sum(p.double().sum().item() for p in m.parameters()), sum(usage.values()))
