# Steps counted by rich.progress.track.
# expected: exact
# needs: rich
# mask: \d:\d\d:\d\d
import torch
from rich.progress import track
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(640, 8)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, shuffle=True)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-3)
for epoch in range(25):
    total = 0.0
    for a, b in track(loader, description=f"epoch {epoch}"):
        loss = (m(a) - b).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        total += loss.item()
    print(epoch, f"{total:.6f}", flush=True)
