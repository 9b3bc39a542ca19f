# Tries: a data set in workers notes odd samples in a file
# expected: either
import torch
from torch import nn

torch.manual_seed(0)

class Data(torch.utils.data.Dataset):
    def __init__(self, X):
        self.X = X

    def __len__(self):
        return len(self.X)

    def __getitem__(self, k):
        if self.X[k].sum() > 3:
            with open("odd.txt", "a") as f:
                f.write(f"{k}\n")
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
X = torch.randn(3200, 8)
data = Data(X)
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True, num_workers=1)
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
n = len(open("odd.txt").readlines())
print("final", sum(p.double().sum().item() for p in m.parameters()), n)
