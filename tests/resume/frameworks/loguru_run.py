# needs: loguru
# expected: exact
# mask: \d\d\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d+
# ignore: run.log
"""Messages by loguru to the terminal and to a file."""
import torch
from loguru import logger
from torch import nn

torch.manual_seed(0)
logger.add("run.log", rotation="10 MB")
x = torch.randn(640, 8)
y = x.sum(1, keepdim=True)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
o = torch.optim.AdamW(m.parameters(), 1e-3)
for epoch in range(12):
    for i in torch.randperm(640).split(16):
        loss = (m(x[i]) - y[i]).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
    logger.info("epoch {}: {:.6f}", epoch, loss.item())
    print(epoch, f"{loss.item():.6f}", flush=True)
torch.save(m.state_dict(), "m.pt")
