# A mistake on purpose: saved every step.
import torch
from parts import model, loader, loss_of

optimizer = torch.optim.Adam(model.parameters())


def save(path):
    torch.save({"model": model.state_dict(), "opt": optimizer.state_dict()}, path)  # lint: save-each-step


for epoch in range(10):
    for x, y in loader:
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
        save("last.pt")
