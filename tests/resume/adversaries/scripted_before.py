# Tries: a class is compiled by torch.jit.script, which looks for names where it was called; only set-up computes with it.
# expected: either
import torch
import torch.distributed.optim  # as some libraries import it: it compiles classes of torch's own
from torch import nn


def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.jit.script
class Pair:
    def __init__(self, x: torch.Tensor):
        self.x = twice(x)

    def both(self) -> torch.Tensor:
        return self.x + 1


@torch.jit.script
def scaled(x: torch.Tensor) -> torch.Tensor:
    return twice(x) * 3


torch.manual_seed(0)
print((scaled(torch.ones(4)) + Pair(torch.ones(4)).both()).tolist(), flush=True)
x = torch.randn(320, 8)
y = x.sum(1, keepdim=True)
m = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 1))
o = torch.optim.Adam(m.parameters(), 1e-3)
for epoch in range(30):
    for i in torch.randperm(320).split(16):
        loss = (m(x[i]) - y[i]).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
    print(epoch, f"{loss.item():.9f}", flush=True)
torch.save(m.state_dict(), "m.pt")
