"""A plain PyTorch loop on handwritten digits.
`diff plain.py with_engine.py` shows what Stoker's Engine takes: six lines."""

import torch
import torch.nn.functional as F
from digits import load
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(1)
train_set, test_set = load()
train, test = DataLoader(train_set, batch_size=32, shuffle=True), DataLoader(test_set, batch_size=256)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.5)

for epoch in range(10):
    model.train()
    for images, labels in train:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    schedule.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(images).argmax(1) == labels).sum().item() for images, labels in test)
    print(
        f"epoch {epoch + 1:2d}  loss {loss.item():.4f}  test accuracy {100 * right / len(test_set):.2f} %",
        flush=True,
    )
