# Tries: a data set takes what it has given out of a set; the order of what is left is seen at the end
# expected: either
import torch
from torch import nn

torch.manual_seed(0)

class Data(torch.utils.data.Dataset):
    def __init__(self, X):
        self.X = X
        self.left = {k * 7919 for k in range(320)}

    def __len__(self):
        return len(self.X)

    def __getitem__(self, k):
        if len(self.left) > 12:
            self.left.discard(k * 7919)
        return self.X[k]
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

print("final", sum(p.double().sum().item() for p in m.parameters()), list(data.left))
