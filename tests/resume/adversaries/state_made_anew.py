# Tries: each forward puts a new object of the script's own class in the place of the one that __init__ made; the loop looks into it
# expected: exact
import torch
from torch import nn

torch.manual_seed(0)


class State:
    def __init__(self, hidden, steps):
        self.hidden, self.steps = hidden, steps


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.state = State(torch.zeros(32), 0)

    def forward(self, x):
        h = self.a(x).tanh() + 0.5 * self.state.hidden
        self.state = State(h.detach().mean(0), self.state.steps + 1)
        return self.b(h).squeeze(1)


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
print("final", sum(p.double().sum().item() for p in m.parameters()), m.state.steps)
