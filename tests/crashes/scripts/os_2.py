"""An error while another error leaves a with statement."""
import os
import torch
from torch import nn


class Keeper:
    """Keeps the last two checkpoints."""

    def __init__(self, folder):
        self.folder = folder
        self.files = []

    def __enter__(self):
        os.mkdir(self.folder)
        return self

    def __exit__(self, *exc):
        os.rmdir(self.folder)  # here

    def save(self, model, step):
        path = os.path.join(self.folder, "%03d.pt" % step)
        torch.save(model.state_dict(), path + ".tmp")
        os.replace(path + ".tmp", path)
        self.files.append(path)
        while len(self.files) > 2:
            os.remove(self.files.pop(0))


torch.manual_seed(0)
model = nn.Bilinear(2, 2, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
with Keeper("ckpt") as keeper:
    for step in range(6):
        opt.zero_grad()
        model(torch.randn(3, 2), torch.randn(3, 2)).sum().backward()
        opt.step()
        keeper.save(model, step)
        print("step", step)
    if os.stat("ckpt/latest.pt").st_size > 0:
        print("fine")
