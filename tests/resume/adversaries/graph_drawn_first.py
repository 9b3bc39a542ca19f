# Tries: SummaryWriter.add_graph traces the model once, with the first batch of a loader, before it is trained.
# expected: exact
# needs: tensorboard
# ignore: runs/*
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

torch.manual_seed(0)
X = torch.randn(320, 8)
loader = DataLoader(TensorDataset(X, X.sum(1)), batch_size=16, shuffle=True)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
writer = SummaryWriter("runs/one")
inputs, _ = next(iter(loader))
writer.add_graph(m, inputs)
o = torch.optim.Adam(m.parameters(), 1e-2)
for epoch in range(60):
    for x, y in loader:
        loss = (m(x).squeeze(1) - y).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
    writer.add_scalar("loss", loss.item(), epoch)
    print(epoch, loss.item(), flush=True)
writer.close()
print("final", sum(p.double().sum().item() for p in m.parameters()))
