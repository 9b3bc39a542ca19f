# A mistake on purpose: accumulation in an inner loop.
import torch
from torch.nn import functional as F
from parts import model, next_batch

accum = 8
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for it in range(10000):
    optimizer.zero_grad()
    for micro in range(accum):
        x, y = next_batch()
        loss = F.cross_entropy(model(x), y)
        loss.backward()  # lint: accumulation-undivided
    optimizer.step()
