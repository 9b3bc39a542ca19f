# A denoising diffusion model on a two-dimensional spiral: noise schedule in buffers, random times, sampling at the end of epochs.
# expected: exact
import math
import torch
from torch import nn

torch.manual_seed(24)
T = 50
r = torch.rand(2000) * 3
data = torch.stack([r * torch.cos(r * 2), r * torch.sin(r * 2)], 1) / 2 + 0.02 * torch.randn(2000, 2)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        betas = torch.linspace(1e-4, 0.05, T)
        self.register_buffer("betas", betas)
        self.register_buffer("abar", torch.cumprod(1 - betas, 0))
        self.net = nn.Sequential(nn.Linear(2 + 16, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 2))

    def forward(self, x, t):
        f = torch.exp(torch.arange(8) * -(math.log(100) / 8))
        a = t[:, None] * f[None]
        return self.net(torch.cat([x, a.sin(), a.cos()], 1))

    @torch.no_grad()
    def sample(self, n):
        x = torch.randn(n, 2)
        for t in reversed(range(T)):
            eps = self(x, torch.full((n,), t))
            x = (x - self.betas[t] / (1 - self.abar[t]).sqrt() * eps) / (1 - self.betas[t]).sqrt()
            if t > 0:
                x = x + self.betas[t].sqrt() * torch.randn_like(x)
        return x


model = Denoiser()
opt = torch.optim.Adam(model.parameters(), 2e-3)
for epoch in range(12):
    perm, losses = torch.randperm(len(data)), []
    for chunk in perm.split(40):
        x0 = data[chunk]
        t = torch.randint(0, T, (len(x0),))
        noise = torch.randn_like(x0)
        xt = model.abar[t].sqrt()[:, None] * x0 + (1 - model.abar[t]).sqrt()[:, None] * noise
        loss = (model(xt, t) - noise).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    print(f"epoch {epoch} loss {sum(losses) / len(losses):.5f} spread {model.sample(64).std().item():.5f}", flush=True)
torch.save(model.sample(200), "samples.pt")
