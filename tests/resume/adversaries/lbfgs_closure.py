# Tries: LBFGS calls its closure a number of times that only the data know; the closure keeps state.
# expected: either
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
o = torch.optim.LBFGS(m.parameters(), lr=0.5, max_iter=6, history_size=5, line_search_fn="strong_wolfe")
calls, seen = 0, []
for i in range(150):
    x = X[(i * 32) % 320:][:32]

    def closure():
        global calls
        calls += 1
        o.zero_grad()
        loss = (m(x + 0.01 * torch.randn_like(x)).squeeze(1) - x.sum(1)).pow(2).mean()
        loss.backward()
        seen.append(loss.item())
        return loss

    loss = o.step(closure)
    if i % 3 == 0:
        print(i, loss.item(), calls, flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), calls, sum(seen))
