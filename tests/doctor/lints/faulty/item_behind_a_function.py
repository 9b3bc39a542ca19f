# A mistake on purpose: item behind a function.
import torch
from torch import nn

device = "cuda"
model = nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1)


def accuracy(output, target):
    return (output.argmax(1) == target).float().mean().cpu().numpy()  # lint: sync-each-step


def step(x, y):
    optimizer.zero_grad()
    output = model(x)
    loss = nn.functional.cross_entropy(output, y)
    loss.backward()
    optimizer.step()
    return accuracy(output, y)


def main(loader):
    for epoch in range(10):
        for x, y in loader:
            step(x.to(device), y.to(device))
