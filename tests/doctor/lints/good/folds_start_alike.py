# Nothing wrong here: folds start alike.
import torch
from torch import nn
from parts import folds, loss_of

for fold, (train_loader, valid_loader) in enumerate(folds()):
    torch.manual_seed(7)
    model = nn.Linear(10, 2)
    opt = torch.optim.Adam(model.parameters())
    for epoch in range(20):
        torch.manual_seed(1000 * fold + epoch)
        for x, y in train_loader:
            opt.zero_grad()
            loss_of(model(x), y).backward()
            opt.step()
    with torch.no_grad():
        print(fold, sum(float(loss_of(model(x), y)) for x, y in valid_loader))
