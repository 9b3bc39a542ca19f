# Tries: a forward gives a dataclass and keeps the last one on the module
# expected: exact
from dataclasses import dataclass

import torch
from torch import nn

torch.manual_seed(0)


@dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor
    n: int = 0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.last = None

    def forward(self, x, y):
        logits = self.b(self.a(x).relu()).squeeze(1)
        loss = (logits - y).pow(2).mean()
        out = Output(logits, loss, len(x))
        self.last = Output(logits.detach(), loss.detach(), len(x))
        return out


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    out = m(x, x.sum(1))
    o.zero_grad()
    out.loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, m.last.loss.item(), m.last.n, flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
