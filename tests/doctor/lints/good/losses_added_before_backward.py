# Nothing wrong here: losses added before backward.
import torch
from parts import heads, trunk, loader

params = [*trunk.parameters(), *(p for h in heads for p in h.parameters())]
opt = torch.optim.Adam(params)
for epoch in range(3):
    for x, ys in loader:
        opt.zero_grad()
        z = trunk(x)
        total = 0
        for head, y in zip(heads, ys):
            loss = torch.nn.functional.mse_loss(head(z), y)
            total += loss
        total.backward()
        opt.step()
