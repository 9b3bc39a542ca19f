"""Two networks and two optimizers: a small GAN that draws digits.

    python gan.py
"""

import torch
import torch.nn.functional as F
from digits import load
from torch import nn
from torch.utils.data import DataLoader

import stoker

engine = stoker.Engine(seed=1, save="20s")
critic = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
maker = nn.Sequential(
    nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.Sigmoid(), nn.Unflatten(1, (1, 8, 8))
)
opt_critic = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.999))
opt_maker = torch.optim.Adam(maker.parameters(), lr=1e-3, betas=(0.5, 0.999))
train = DataLoader(load()[0], batch_size=32, shuffle=True, drop_last=True)
engine.setup(critic, maker, opt_critic, opt_maker, train)

for epoch in engine.epochs(5):
    for images, _ in engine.batches(train):
        noise = torch.randn(len(images), 16, device=engine.device)
        loss_critic = F.softplus(-critic(images)).mean() + F.softplus(critic(maker(noise).detach())).mean()
        engine.backward(loss_critic, opt_critic)  # into the parameters of this optimizer only
        engine.update(opt_critic)
        loss_maker = F.softplus(-critic(maker(noise))).mean()
        engine.backward(loss_maker, opt_maker)
        engine.update(opt_maker)
        engine.log(critic=loss_critic, maker=loss_maker)
    engine.print(f"epoch {epoch + 1}  critic {loss_critic.item():.3f}  maker {loss_maker.item():.3f}")
engine.export("maker.safetensors", maker)
