# Tries: networks in reference circles, dropped with and without gradients: when the garbage collector takes them differs from life to life.
# expected: either  (what only the collector can take is in the way of an image until it comes)
import gc

import torch
from torch import nn

torch.manual_seed(21)
X = torch.randn(320, 6)
Y = X.prod(1, keepdim=True)
gc.set_threshold(3000, 5, 5)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 24), nn.Linear(24, 1)
        self.me = [self]  # only the garbage collector takes it

    def forward(self, x):
        return self.b(self.a(x).tanh())


scores, junk = [], []
for number in range(40):
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for i in range(40):
        at = torch.randint(0, 320, (16,))
        loss = (net(X[at]) - Y[at]).pow(2).mean()
        optimizer.zero_grad(set_to_none=number % 3 != 0)
        loss.backward()
        optimizer.step()
        junk.append([loss.item()])
        del junk[:-500]
    if number % 2:
        optimizer.zero_grad()
    scores.append(loss.item())
    print(number, scores[-1], flush=True)
    del net, optimizer
print("best", min(scores), sum(scores))
