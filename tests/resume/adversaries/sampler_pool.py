# Tries: a sampler keeps the indices that are still to be labelled in a set and takes from it by pop
# expected: either
import torch
from torch import nn

torch.manual_seed(0)

class Pool(torch.utils.data.Sampler):
    def __init__(self, n):
        self.pool = set(k * 7919 % 100003 for k in range(n))

    def __iter__(self):
        for _ in range(16):
            if len(self.pool) > 20:
                self.pool.pop()
        yield from torch.randperm(320).tolist()

    def __len__(self):
        return 320
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
sampler = Pool(400)
loader = torch.utils.data.DataLoader(data, batch_size=16, sampler=sampler)
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

print("final", sum(p.double().sum().item() for p in m.parameters()), list(sampler.pool))
