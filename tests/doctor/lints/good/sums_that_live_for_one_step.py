# Nothing wrong here: what keeps a graph is gone at the next step, is gone back from, or was made a number first.
import torch
from torch import nn
from parts import tasks, loader, net

opt = torch.optim.SGD(net.parameters(), lr=0.1)
loss_fn = nn.MSELoss()
recent, shown, steady = [], 0.0, 0.0
for epoch in range(5):
    for x, y in loader:
        opt.zero_grad()
        total, parts = 0.0, []
        for task in tasks:
            loss = loss_fn(net(task(x)), y)
            loss.backward()
            total += loss
            parts.append(loss)
        recent.append(loss)
        torch.stack(recent[-3:]).var().backward()
        opt.step()
        loss = loss.item()
        shown += loss
        with torch.no_grad():
            steady = steady + total
    print(epoch, shown)
