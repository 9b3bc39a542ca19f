# Tries: SummaryWriter.add_graph traces the model once before it is trained.
# expected: exact
# needs: tensorboard
# ignore: runs/*
import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
writer = SummaryWriter("runs/one")
writer.add_graph(m, X[:4])
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        writer.add_scalar("loss", loss.item(), i)
        print(i, loss.item(), flush=True)
writer.close()
print("final", sum(p.double().sum().item() for p in m.parameters()))
