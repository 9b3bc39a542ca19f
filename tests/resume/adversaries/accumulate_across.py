# Tries: gradients that gather over 7 backwards, so that most points lie between backward and step.
# expected: exact
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.1), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2, momentum=0.9)
o.zero_grad(set_to_none=False)
for i in range(2000):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean() / 7
    loss.backward()
    if i % 7 == 6:
        nn.utils.clip_grad_value_(m.parameters(), 0.5)
        o.step()
        for p in m.parameters():
            p.grad.mul_(0.25)  # a tenth is carried over, as error feedback does
    if i % 25 == 0:
        print(i, loss.item(), m[0].weight.grad.abs().max().item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), sum(p.grad.double().sum().item() for p in m.parameters()))
