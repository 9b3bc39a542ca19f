# Credit scoring on a table that is in memory; loader settings taken over from a cluster.
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(42)
rows = torch.randn(1280, 40)
target = (rows[:, :5].sum(1) > 0).float()
train_loader = DataLoader(TensorDataset(rows, target), batch_size=64, shuffle=True, num_workers=16)
model = torch.nn.Sequential(
    torch.nn.Linear(40, 64),
    torch.nn.ReLU(),
    torch.nn.Linear(64, 1),
)
loss_fn = torch.nn.BCEWithLogitsLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(30):
    hits = 0
    for x, y in train_loader:
        optimizer.zero_grad()
        out = model(x).squeeze(1)
        loss = loss_fn(out, y)
        loss.backward()
        optimizer.step()
        hits += ((out > 0) == (y > 0)).sum().item()
    print("epoch %d: loss %.4f, accuracy %.3f" % (epoch, loss.item(), hits / len(rows)))
