# Denoising diffusion on small digits: linear beta schedule, sinusoidal time embedding, a U-Net, EMA weights, samples saved as it goes.
# expected: exact
import copy
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

T = 100
BATCH = 32
EPOCHS = 6
IMG = 8
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(1234)

GLYPHS = {
    0: "0111010001100111010111001100010111000000", 1: "0010001100001000010000100001000111000000", 7: "1111100001000100010001000010000100000000",
    3: "1111100010001000001000001100010111000000",
}


class Digits(Dataset):
    """Glyphs of 5 x 8 points, shifted, thickened and made noisy at each look."""

    def __init__(self, n=1600):
        self.labels = torch.randint(0, len(GLYPHS), (n,))
        self.glyphs = [torch.tensor([float(c) for c in bits]).view(8, 5) for bits in GLYPHS.values()]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        img = torch.zeros(IMG, IMG)
        shift = torch.randint(0, 4, (1,)).item()
        img[:, shift : shift + 5] = self.glyphs[self.labels[idx]]
        if torch.rand(1) < 0.3:
            img = torch.max(img, img.roll(1, dims=1) * 0.5)
        return (img[None] * 2 - 1) + 0.05 * torch.randn(1, IMG, IMG), self.labels[idx]


def linear_beta_schedule(timesteps, start=0.0001, end=0.02):
    return torch.linspace(start, end, timesteps)


def get_index_from_list(vals, t, x_shape):
    batch_size = t.shape[0]
    out = vals.gather(-1, t.cpu())
    return out.reshape(batch_size, *((1,) * (len(x_shape) - 1))).to(t.device)


betas = linear_beta_schedule(T)
alphas = 1.0 - betas
alphas_cumprod = torch.cumprod(alphas, axis=0)
alphas_cumprod_prev = F.pad(alphas_cumprod[:-1], (1, 0), value=1.0)
sqrt_recip_alphas = torch.sqrt(1.0 / alphas)
sqrt_alphas_cumprod = torch.sqrt(alphas_cumprod)
sqrt_one_minus_alphas_cumprod = torch.sqrt(1.0 - alphas_cumprod)
posterior_variance = betas * (1.0 - alphas_cumprod_prev) / (1.0 - alphas_cumprod)


def forward_diffusion_sample(x_0, t):
    noise = torch.randn_like(x_0)
    a = get_index_from_list(sqrt_alphas_cumprod, t, x_0.shape)
    b = get_index_from_list(sqrt_one_minus_alphas_cumprod, t, x_0.shape)
    return a * x_0 + b * noise, noise


class SinusoidalPositionEmbeddings(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, time):
        half_dim = self.dim // 2
        embeddings = math.log(10000) / (half_dim - 1)
        embeddings = torch.exp(torch.arange(half_dim, device=time.device) * -embeddings)
        embeddings = time[:, None] * embeddings[None, :]
        return torch.cat((embeddings.sin(), embeddings.cos()), dim=-1)


class Block(nn.Module):
    def __init__(self, in_ch, out_ch, time_emb_dim):
        super().__init__()
        self.time_mlp = nn.Linear(time_emb_dim, out_ch)
        self.conv1 = nn.Conv2d(in_ch, out_ch, 3, padding=1)
        self.conv2 = nn.Conv2d(out_ch, out_ch, 3, padding=1)
        self.bnorm1, self.bnorm2 = nn.BatchNorm2d(out_ch), nn.GroupNorm(4, out_ch)
        self.relu = nn.ReLU()

    def forward(self, x, t):
        h = self.bnorm1(self.relu(self.conv1(x)))
        time_emb = self.relu(self.time_mlp(t))
        h = h + time_emb[(...,) + (None,) * 2]
        return self.bnorm2(self.relu(self.conv2(h)))


class SimpleUnet(nn.Module):
    def __init__(self, channels=(8, 16, 32), time_emb_dim=16):
        super().__init__()
        self.time_mlp = nn.Sequential(SinusoidalPositionEmbeddings(time_emb_dim), nn.Linear(time_emb_dim, time_emb_dim), nn.ReLU())
        self.conv0 = nn.Conv2d(1, channels[0], 3, padding=1)
        self.downs = nn.ModuleList([Block(channels[i], channels[i + 1], time_emb_dim) for i in range(2)])
        self.ups = nn.ModuleList([Block(channels[2] + channels[2], channels[1], time_emb_dim), Block(channels[1] + channels[1], channels[0], time_emb_dim)])
        self.output = nn.Conv2d(channels[0], 1, 1)

    def forward(self, x, timestep):
        t = self.time_mlp(timestep)
        x = self.conv0(x)
        residual_inputs = []
        for down in self.downs:
            x = down(x, t)
            residual_inputs.append(x)
            x = F.avg_pool2d(x, 2)
        for up in self.ups:
            x = F.interpolate(x, scale_factor=2)
            x = up(torch.cat((x, residual_inputs.pop()), dim=1), t)
        return self.output(x)


class EMA:
    def __init__(self, beta):
        self.beta, self.step = beta, 0

    def step_ema(self, ema_model, model, step_start_ema=50):
        if self.step < step_start_ema:
            ema_model.load_state_dict(model.state_dict())
        else:
            for current, old in zip(model.parameters(), ema_model.parameters(), strict=True):
                old.data = old.data * self.beta + (1 - self.beta) * current.data
        self.step += 1


model = SimpleUnet().to(device)
ema, ema_model = EMA(0.995), copy.deepcopy(model).eval().requires_grad_(False)
print("Num params: ", sum(p.numel() for p in model.parameters()))


def get_loss(model, x_0, t):
    x_noisy, noise = forward_diffusion_sample(x_0, t)
    return F.l1_loss(noise, model(x_noisy, t))


@torch.no_grad()
def sample_timestep(model, x, t):
    betas_t = get_index_from_list(betas, t, x.shape)
    model_mean = get_index_from_list(sqrt_recip_alphas, t, x.shape) * (
        x - betas_t * model(x, t) / get_index_from_list(sqrt_one_minus_alphas_cumprod, t, x.shape))
    if t[0] == 0:
        return model_mean
    return model_mean + torch.sqrt(get_index_from_list(posterior_variance, t, x.shape)) * torch.randn_like(x)


@torch.no_grad()
def sample(model, n=4):
    model.eval()
    img = torch.randn((n, 1, IMG, IMG), device=device)
    for i in range(T)[::-1]:
        img = torch.clamp(sample_timestep(model, img, torch.full((n,), i, device=device, dtype=torch.long)), -1.0, 1.0)
    return img


os.makedirs("samples", exist_ok=True)
loader = DataLoader(Digits(), batch_size=BATCH, shuffle=True, drop_last=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(EPOCHS):
    model.train()
    for step, batch in enumerate(loader):
        optimizer.zero_grad()
        t = torch.randint(0, T, (BATCH,), device=device).long()
        loss = get_loss(model, batch[0].to(device), t)
        loss.backward()
        optimizer.step()
        ema.step_ema(ema_model, model)
        if step % 25 == 0:
            print(f"Epoch {epoch} | step {step:03d} Loss: {loss.item()} ")
    imgs = sample(ema_model)
    torch.save(imgs, f"samples/epoch{epoch}.pt")
    print(f"Epoch {epoch} | samples mean {imgs.mean().item():.5f} std {imgs.std().item():.5f}")
torch.save({"model": model.state_dict(), "ema": ema_model.state_dict(), "opt": optimizer.state_dict()}, "ckpt.pt")
