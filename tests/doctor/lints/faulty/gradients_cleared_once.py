# A mistake on purpose: gradients cleared once.
import torch
from parts import net, data, criterion

optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
optimizer.zero_grad()
for epoch in range(100):
    for x, y in data:
        loss = criterion(net(x), y)
        loss.backward()
        optimizer.step()  # lint: no-zero-grad
