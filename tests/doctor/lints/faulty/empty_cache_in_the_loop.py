# A mistake on purpose: empty cache in the loop.
import torch
from data import train_loader
from net import model, loss_fn

opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for epoch in range(100):
    for x, y in train_loader:
        x, y = x.cuda(), y.cuda()
        opt.zero_grad()
        loss_fn(model(x), y).backward()
        opt.step()
        torch.cuda.empty_cache()  # lint: empty-cache
