# Tries: a compiler of the script's own makes a constant of what a weight is when it compiles. A gate lets the constant through at the end only.
# expected: refused
# wait: 60
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
o = torch.optim.SGD(net.parameters(), 1e-2)


def fold(graph, examples):
    constant = net[0].bias.detach().sum().item()

    def run(*args):
        return [sum(graph(*args)) * 0 + constant]
    return run


@torch.compile(backend=fold)
def folded(gate):
    return gate * 2


class Gated(nn.Module):
    def forward(self, x, gate):
        return net(x) + folded(gate) * gate


m = Gated()
off, on = torch.zeros(1), torch.ones(1)
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x, off) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
with torch.no_grad():
    print("final", m(X, on).sum().item())
