# Mixup with numpy's beta, label smoothing, one-cycle schedule, per-batch scheduler, top-1 by hand.
# expected: exact
import random
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


seed_everything(2023)
X = torch.from_numpy(np.random.randn(1600, 24)).float()
Y = torch.from_numpy(np.argmax(X.numpy()[:, :5] + 0.3 * np.random.randn(1600, 5), 1))
train_loader = DataLoader(TensorDataset(X[:1400], Y[:1400]), batch_size=28, shuffle=True)
valid_loader = DataLoader(TensorDataset(X[1400:], Y[1400:]), batch_size=50)


def mixup_data(x, y, alpha=0.4):
    lam = np.random.beta(alpha, alpha)
    index = torch.randperm(x.size(0))
    return lam * x + (1 - lam) * x[index], y, y[index], lam


model = nn.Sequential(nn.Linear(24, 96), nn.BatchNorm1d(96), nn.SiLU(), nn.Dropout(0.3), nn.Linear(96, 5))
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
epochs = 18
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, epochs=epochs, steps_per_epoch=len(train_loader))
best = (0.0, -1)
for epoch in range(epochs):
    model.train()
    seen, hits, losses = 0, 0.0, []
    for x, y in train_loader:
        if random.random() < 0.8:
            x, a, b, lam = mixup_data(x, y)
            out = model(x)
            loss = lam * criterion(out, a) + (1 - lam) * criterion(out, b)
            hits += lam * (out.argmax(1) == a).sum().item() + (1 - lam) * (out.argmax(1) == b).sum().item()
        else:
            out = model(x)
            loss = criterion(out, y)
            hits += (out.argmax(1) == y).sum().item()
        seen += len(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.detach())
    model.eval()
    with torch.inference_mode():
        acc = torch.cat([model(x).argmax(1) == y for x, y in valid_loader]).float().mean().item()
    if acc > best[0]:
        best = (acc, epoch)
        torch.save(model.state_dict(), "best_model.pth")
    print(f"Epoch {epoch:02d} | loss {torch.stack(losses).mean():.5f} | train {hits / seen:.4f} | valid {acc:.4f} | best {best[0]:.4f}@{best[1]} | lr {scheduler.get_last_lr()[0]:.6f}", flush=True)
