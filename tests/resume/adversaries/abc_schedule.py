# Tries: class variables of a schedule that inherits from abc.ABC steer the training
# short: yes
# expected: exact
from abc import ABC, abstractmethod
import torch
from torch import nn

torch.manual_seed(0)
class Schedule(ABC):
    steps = 0

    @abstractmethod
    def scale(self): ...


class Late(Schedule):
    def scale(self):
        Schedule.steps += 1
        return 1.0 if Schedule.steps < 1000 else 0.5


schedule = Late()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        x = x * schedule.scale()
        return self.b(self.a(x).relu()).squeeze(1)


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)

for i in range(1200):
    x = X[(i * 16) % 320:][:16]

    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()

    if i % 25 == 0:
        print(i, loss.item(), flush=True)

print("final", sum(p.double().sum().item() for p in m.parameters()), flush=True)
