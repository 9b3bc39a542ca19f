# Tries: a compiler declines the first forward, and torch remembers in C that this function is not to be compiled; later it would not decline.
# expected: refused
# wait: 60
import torch
import torch._dynamo
from torch import nn

torch._dynamo.config.suppress_errors = True
torch.manual_seed(0)
X = torch.randn(320, 8)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
o = torch.optim.SGD(net.parameters(), 1e-2)
torch.compile(lambda: 1, backend="eager")()  # what the compiler sets up by itself
first = net[0].bias.detach().clone()


def choosy(graph, examples):
    if torch.equal(first, net[0].bias):
        raise RuntimeError("nothing has been learned yet")
    return lambda *args: [each * 3 for each in graph(*args)]


@torch.compile(backend=choosy)
def folded(gate):
    return gate * 2


class Gated(nn.Module):
    def forward(self, x, gate):
        return net(x) + folded(gate)


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
