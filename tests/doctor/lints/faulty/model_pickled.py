# A mistake on purpose: model pickled.
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        return self.fc(x)


net = Net()
torch.save(net, "net.pth")  # lint: whole-model-saved
