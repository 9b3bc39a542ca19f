# Tries: a variable from outside chooses other kernels in the second life; training is a sum of powers of two, and only a product at the end is rounded.
# expected: either
import torch
from torch import nn

torch.manual_seed(0)
large = torch.randn(400, 400)
m = nn.Linear(1, 1)
with torch.no_grad():
    m.weight.fill_(0.5)
    m.bias.fill_(0.25)
o = torch.optim.SGD(m.parameters(), 2**-8)
for i in range(1600):
    x = torch.full((1, 1), 2.0 ** (i % 3 - 1))
    loss = m(x).sub(1).square().sum()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, flush=True)
print("final", (large @ large).sum().item(), torch.linalg.inv(large).sum().item(), m.weight.item())
