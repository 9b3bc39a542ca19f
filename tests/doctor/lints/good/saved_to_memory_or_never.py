# Nothing wrong here: saved to memory or never.
import io
import torch
from parts import model, loader, loss_of, send

opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in loader:
        opt.zero_grad()
        loss_of(model(x), y).backward()
        opt.step()
        box = io.BytesIO()
        torch.save({"step": 1}, box)
        send(box)
net = torch.nn.Linear(2, 2)
torch.save(net, "whole.pt") if False else torch.save(net.state_dict(), "net.pt")
