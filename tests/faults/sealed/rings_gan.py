"""A GAN that draws points on a ring. The discriminator sees statistics of the whole batch."""
import math

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))

    def forward(self, x):
        spread = x.std(0, keepdim=True).expand_as(x)
        return self.net(torch.cat([x, spread], 1))


def ring(n):
    angle = torch.rand(n) * 2 * math.pi
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.02 * torch.randn(n, 2)


torch.manual_seed(122)
loader = DataLoader(TensorDataset(ring(3200)), batch_size=32, shuffle=True)
generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Linear(64, 2))
discriminator = Discriminator()
opt_g = optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
for epoch in range(3):
    for (real,) in loader:
        fake = generator(torch.randn(len(real), 8))
        d_loss = bce(discriminator(real), torch.ones(len(real), 1)) + bce(discriminator(fake.detach()), torch.zeros(len(real), 1))
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
        g_loss = bce(discriminator(fake), torch.ones(len(real), 1))
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
    print(f"epoch {epoch} d {d_loss.item():.4f} g {g_loss.item():.4f}")
