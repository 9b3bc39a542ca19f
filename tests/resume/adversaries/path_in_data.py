# Tries: a data set puts a folder into sys.path when it is first read and imports from it; another import from there comes at the end
# expected: either
import torch
from torch import nn
import os, sys
torch.manual_seed(0)

LIB = os.path.join(os.path.dirname(os.__file__), "wsgiref")


class Data(torch.utils.data.Dataset):
    def __init__(self, X):
        self.X = X
        self.ready = False

    def __len__(self):
        return len(self.X)

    def __getitem__(self, k):
        if not self.ready:
            self.ready = True
            sys.path.append(LIB)
        return self.X[k] * 2
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

    if i % 25 == 0:
        print(i, loss.item(), flush=True)
import headers
print("final", sum(p.double().sum().item() for p in m.parameters()), headers.Headers([("a", "b")]).items())
