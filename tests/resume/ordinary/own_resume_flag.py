# A script with checkpoints of its own and `resume if there is one`, as many have: epoch, model, optimizer, best score.
# short: yes
# expected: exact
# leftovers: yes
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CKPT = "checkpoint.pth.tar"
torch.manual_seed(26)
X = torch.randn(1300, 10)
Y = (X[:, :3].prod(1) > 0).long()
train_loader, val_loader = DataLoader(TensorDataset(X[:1000], Y[:1000]), 20, shuffle=True), DataLoader(TensorDataset(X[1000:], Y[1000:]), 100)
model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
start_epoch, best = 0, 0.0
if os.path.isfile(CKPT):
    ck = torch.load(CKPT)
    start_epoch, best = ck["epoch"], ck["best"]
    model.load_state_dict(ck["model"])
    optimizer.load_state_dict(ck["optimizer"])
    print("=> loaded checkpoint, epoch", start_epoch)
for epoch in range(start_epoch, 22):
    for group in optimizer.param_groups:
        group["lr"] = 0.05 * (0.5 ** (epoch // 8))
    losses = 0.0
    for i, (x, y) in enumerate(train_loader):
        loss = nn.functional.cross_entropy(model(x), y)
        losses += loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        acc = sum((model(x).argmax(1) == y).sum().item() for x, y in val_loader) / 300
    best = max(best, acc)
    torch.save({"epoch": epoch + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "best": best}, CKPT)
    print(f"Epoch: [{epoch}] loss {losses / (i + 1):.4f} acc {acc:.4f} best {best:.4f}", flush=True)
