# Tries: a data set makes a view by .numpy() of its weights when first read; the loop changes the weights late
# expected: either
import torch
from torch import nn

torch.manual_seed(0)

class Data(torch.utils.data.Dataset):
    def __init__(self, X):
        self.X = X
        self.w = torch.ones(len(X))
        self.arr = None

    def __len__(self):
        return len(self.X)

    def __getitem__(self, k):
        if self.arr is None:
            self.arr = self.w.numpy()
        return self.X[k] * float(self.arr[k])
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1

        return self.b(self.a(x).relu()).squeeze(1)


X = torch.randn(320, 8)
data = Data(X)
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
def batches():
    while True:
        yield from loader
it = batches()
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1600):
    x = next(it)
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 500 == 499:
        data.w[i % 320] *= 0.5
        data.w[:100] += 0.01
    if i % 25 == 0:
        print(i, loss.item(), flush=True)

print("final", sum(p.double().sum().item() for p in m.parameters()), data.w.double().sum().item(), float(data.arr.sum()))
