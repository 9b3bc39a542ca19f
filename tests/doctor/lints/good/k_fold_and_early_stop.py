# Nothing wrong here: k fold and early stop.
import copy
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, SubsetRandomSampler
from sklearn.model_selection import KFold
from parts import dataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.head = nn.Linear(32, 2)

    def forward(self, x):
        return self.head(self.body(x))


def epoch_loss(model, loader, criterion, optimizer=None):
    model.train(optimizer is not None)
    total = 0.0
    with torch.set_grad_enabled(optimizer is not None):
        for x, y in loader:
            loss = criterion(model(x), y)
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            total += loss.item() * len(x)
    return total / len(loader.dataset)


for fold, (a, b) in enumerate(KFold(5, shuffle=True).split(range(len(dataset)))):
    train_loader = DataLoader(dataset, batch_size=32, sampler=SubsetRandomSampler(a))
    valid_loader = DataLoader(Subset(dataset, b), batch_size=128)
    model = Net()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    opt = torch.optim.Adam(model.parameters())
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=3)
    best, left, kept = float("inf"), 10, None
    for epoch in range(200):
        epoch_loss(model, train_loader, criterion, opt)
        valid = epoch_loss(model, valid_loader, criterion)
        plateau.step(valid)
        if valid < best:
            best, left, kept = valid, 10, copy.deepcopy(model.state_dict())
        else:
            left -= 1
            if not left:
                break
    torch.save(kept, f"fold{fold}.pt")
