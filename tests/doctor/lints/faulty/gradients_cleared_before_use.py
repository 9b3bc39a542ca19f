# A mistake on purpose: gradients cleared before use.
import torch
from parts import net, data, criterion

optimizer = torch.optim.Adam(net.parameters())
for x, y in data:
    loss = criterion(net(x), y)
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()  # lint: no-zero-grad
