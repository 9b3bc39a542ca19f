# A mistake on purpose: validate with gradients.
import torch
from torch import nn
from torch.utils.data import DataLoader, random_split
from parts import dataset


def validate(model, loader):
    model.eval()
    total, hits = 0, 0
    for x, y in loader:  # lint: evaluation-grad
        out = model(x)
        hits += (out.argmax(dim=1) == y).sum().item()
        total += y.numel()
    return hits / total


def main():
    train_set, valid_set = random_split(dataset, [0.9, 0.1])
    train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
    valid_loader = DataLoader(valid_set, batch_size=256)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(10):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
        print(epoch, validate(model, valid_loader))


main()
