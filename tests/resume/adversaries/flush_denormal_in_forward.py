# Tries: a switch of the processor that torch cannot be asked for, set at the first call of a model; numbers so small that it matters come long after the tail.
# expected: refused
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 1)
        self.ready = False

    def forward(self, x):
        if not self.ready:
            torch.set_flush_denormal(True)
            self.ready = True
        return self.a(x)


net = Net()
opt = torch.optim.SGD(net.parameters(), 1e-3)
trace = torch.ones(8)
for step in range(1000):
    x = torch.randn(32, 8)
    loss = F.mse_loss(net(x), x[:, :1])
    opt.zero_grad()
    loss.backward()
    opt.step()
    trace = trace * 0.9
    if step % 25 == 0:
        print(step, loss.item(), flush=True)
print("trace", trace.sum().item())
