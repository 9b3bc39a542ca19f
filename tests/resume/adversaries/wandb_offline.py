# Tries: wandb logs into a folder of its own, whose name, program and socket are other ones in each life.
# expected: exact
# needs: wandb
# ignore: wandb*
import torch
import wandb
from torch import nn

torch.manual_seed(0)
run = wandb.init(project="p", mode="offline")
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(3000):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        run.log({"loss": loss.item()})
        print(i, loss.item(), flush=True)
run.finish()
print("final", sum(p.double().sum().item() for p in m.parameters()))
