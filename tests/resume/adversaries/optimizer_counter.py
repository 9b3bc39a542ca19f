# Tries: a warm-up counter that lives only as a plain attribute of an own Optimizer and changes inside step().
# short: yes
# expected: either
import torch
from torch import nn

torch.manual_seed(0)


class WarmSGD(torch.optim.Optimizer):
    def __init__(self, params, lr, warm):
        super().__init__(params, dict(lr=lr))
        self.t = 0
        self.warm = warm

    @torch.no_grad()
    def step(self, closure=None):
        self.t += 1
        scale = min(1, self.t / self.warm)
        for g in self.param_groups:
            for p in g["params"]:
                p.add_(p.grad, alpha=-g["lr"] * scale)


X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = WarmSGD(m.parameters(), 1e-2, 900)


def main():
    for i in range(1500):
        x = X[(i * 16) % 320:][:16]
        loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        if i % 25 == 0:
            print(i, loss.item(), flush=True)
    print("final", sum(p.double().sum().item() for p in m.parameters()), o.t)


main()
