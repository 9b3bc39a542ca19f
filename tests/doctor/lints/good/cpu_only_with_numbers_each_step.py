# Nothing wrong here: on a CPU a number costs nothing.
import torch
from parts import model, loader, loss_of

opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    total = 0.0
    for x, y in loader:
        opt.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        opt.step()
        total += loss.item()
    print(epoch, total)
