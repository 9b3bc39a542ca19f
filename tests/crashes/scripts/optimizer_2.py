"""An assertion in the closure of LBFGS."""
import torch
from torch import nn, optim

torch.manual_seed(11)
rnn = nn.GRU(3, 5, batch_first=True)
head = nn.Linear(5, 1)
params = [*rnn.parameters(), *head.parameters()]
lbfgs = optim.LBFGS(params, lr=0.1, max_iter=3)
series = torch.sin(torch.arange(60.).view(4, 5, 3))
evaluations = 0


def closure():
    global evaluations
    evaluations += 1
    lbfgs.zero_grad()
    out, _ = rnn(series)
    loss = ((head(out[:, -1]) - 1) ** 2).mean()
    assert evaluations < 14, f"{evaluations} evaluations of the closure"  # here
    loss.backward()
    return loss


for k in range(20):
    value = lbfgs.step(closure)
    print(f"[{k}] {value.item():.4f}")
