# A mistake on purpose: seed each epoch.
import torch
from parts import make_model, loader, loss_of

model = make_model()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(10):
    torch.manual_seed(42)  # lint: seed-in-loop
    for x, y in loader:
        opt.zero_grad()
        loss_of(model(x), y).backward()
        opt.step()
