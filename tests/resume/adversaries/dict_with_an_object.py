# Tries: a module that gives back the dictionary that it was given, with an object of the script's in it and a value replaced
# expected: exact
import torch

torch.manual_seed(0)


class Meta:
    def __init__(self, n):
        self.n = n


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)

    def forward(self, f):
        f["x"] = self.a(f["x"])
        f["out"] = self.b(f["x"])
        f.pop("drop")
        return f


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.001)
ones = torch.ones(2, 4)
for i in range(1500):
    f = net({"x": ones, "meta": Meta(i), "n": i, "drop": 1})
    loss = f["out"].pow(2).mean() + f["x"].mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 50 == 0:
        print(i, loss.item(), f["meta"].n, f["n"], sorted(f), flush=True)
