"""Stacks from a microscope, stored with the channel last and turned around layer by layer."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class TurnAround(nn.Module):
    """Layer norm over channels for (batch, channel, height, width)."""

    def __init__(self, channels):
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, x):
        x = x.permute(0, 2, 3, 1).contiguous()
        x = self.norm(x)
        return x.permute(0, 3, 1, 2).contiguous()


class Mixer(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm, self.mix = TurnAround(channels), nn.Linear(channels, channels)

    def forward(self, x):
        h = self.norm(x)
        h = self.mix(h.permute(0, 2, 3, 1).contiguous()).permute(0, 3, 1, 2).contiguous()
        return x + torch.relu(h)


class Net(nn.Module):
    def __init__(self, channels=16, blocks=4):
        super().__init__()
        self.blocks = nn.Sequential(*[Mixer(channels) for _ in range(blocks)])
        self.head = nn.Linear(channels, 3)

    def forward(self, x):
        x = self.blocks(x.permute(0, 3, 1, 2).contiguous())
        return self.head(x.mean((2, 3)))


torch.manual_seed(18)
stacks = torch.randn(320, 40, 40, 16)
labels = torch.randint(3, (320,))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(12):
    for x, y in DataLoader(TensorDataset(stacks, labels), batch_size=8, shuffle=True):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
