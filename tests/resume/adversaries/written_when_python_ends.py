# Tries: a `__del__` that Python calls when it takes the script's module apart, and that needs names of that module: nothing of ours may hold them.
# expected: exact
import json
import torch
from torch import nn

torch.manual_seed(0)
open_ = open


class Log:
    def __init__(self):
        self.rows = []

    def __del__(self):
        with open_("rows.json", "w") as f:
            json.dump(self.rows, f)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.a(x)


log = Log()
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(1000):
    loss = net(torch.randn(8, 4)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    log.rows.append(loss.item())
    if step % 25 == 0:
        print(step, loss.item(), flush=True)
print("done", net.calls)
