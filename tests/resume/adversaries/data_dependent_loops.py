# Tries: the data decide how often loops run, which branch is taken and when an exception flies.
# every: 10steps
# expected: exact
import torch
from torch import nn

torch.manual_seed(0)


class TooGood(Exception):
    pass


X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)
steps = raised = 0


def fit(x):
    global steps
    tries = 0
    while True:
        loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
        if loss < 0.5 and tries == 0:
            raise TooGood(loss.detach())
        o.zero_grad()
        loss.backward()
        o.step()
        steps += 1
        tries += 1
        if loss < 1.0 or tries > 6:
            return loss


for i in range(500):
    x = X[(i * 16) % 320:][:16] * (1 + 0.3 * torch.randn(1))
    try:
        loss = fit(x)
    except TooGood as e:
        raised += 1
        loss = e.args[0]
        with torch.no_grad():
            m[2].bias.add_(0.05 * torch.randn(1))
    if i % 15 == 0:
        print(i, loss.item(), steps, raised, flush=True)
print("final", steps, raised, sum(p.double().sum().item() for p in m.parameters()))
