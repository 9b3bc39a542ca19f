# Tries: optimizers that step within the call of a module (a meta-learner, a wrapper around a whole step): steps are steps there too, and what the call gives is an array.
# expected: exact
import numpy as np
import torch
from torch import nn


class Meta(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.head = nn.Linear(6, 12), nn.Linear(12, 3)
        self.opts = [torch.optim.Adam(self.net.parameters(), 1e-3), torch.optim.SGD(self.head.parameters(), 1e-2, momentum=0.9)]

    def forward(self, x, y):
        correct = [0, 0]
        for k, opt in enumerate(self.opts):
            out = self.head(self.net(x).relu())
            loss = nn.functional.cross_entropy(out, y)
            for each in self.opts:
                each.zero_grad()
            loss.backward()
            opt.step()
            correct[k] = int((out.argmax(1) == y).sum())
        return np.array(correct)[[0, -1]] / len(y), loss.item()


torch.manual_seed(0)
meta, total, rates = Meta(), 0.0, []
for step in range(250):
    x = torch.randn(16, 6)
    rate, loss = meta(x, (x[:, 0] > 0).long() + (x[:, 1] > 1).long())
    total += loss
    rates.append(rate)
    if step % 25 == 0:
        print(step, rate, f"{total:.9f}", np.mean(rates, axis=0), flush=True)
torch.save(meta.state_dict(), "meta.pt")
