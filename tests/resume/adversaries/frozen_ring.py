# Tries: gc.freeze() makes a class invisible that nothing but itself holds; forward() comes to the tensor in it by way of the class that it
# is made from. Read at the end only.
# expected: refused
import gc
import torch
from torch import nn

torch.manual_seed(0)


class Box:
    pass


def hidden():
    type("Hidden", (Box,), {"state": torch.zeros(8)})


gc.disable()
hidden()
gc.freeze()
gc.enable()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x):
        Box.__subclasses__()[0].state.mul_(0.99).add_(x.detach().mean(0))
        return self.b(self.a(x).relu()).squeeze(1)


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), Box.__subclasses__()[0].state.sum().item())
