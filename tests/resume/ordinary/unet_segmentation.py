# A small U-Net on drawn circles: skip connections, dice score, own Dataset class that draws with numpy, best model by dice.
# expected: exact
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(5)
np.random.seed(5)


class Circles(Dataset):
    def __init__(self, n, augment):
        self.n, self.augment = n, augment
        self.params = np.random.rand(n, 3)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        cx, cy, r = self.params[i] * [24, 24, 6] + [4, 4, 2]
        yy, xx = np.mgrid[:32, :32]
        mask = ((xx - cx) ** 2 + (yy - cy) ** 2 < r * r).astype("float32")
        image = mask + np.random.randn(32, 32).astype("float32") * 0.6
        if self.augment and np.random.rand() > 0.5:
            image, mask = image[:, ::-1].copy(), mask[:, ::-1].copy()
        return torch.from_numpy(image)[None], torch.from_numpy(mask)[None]


def double(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True), nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, c=6):
        super().__init__()
        self.d1, self.d2, self.mid = double(1, c), double(c, 2 * c), double(2 * c, 4 * c)
        self.up2, self.u2 = nn.ConvTranspose2d(4 * c, 2 * c, 2, 2), double(4 * c, 2 * c)
        self.up1, self.u1 = nn.ConvTranspose2d(2 * c, c, 2, 2), double(2 * c, c)
        self.out = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([self.up2(m), b], 1))
        a = self.u1(torch.cat([self.up1(b), a], 1))
        return self.out(a)


def dice(p, t):
    p = (p > 0).float()
    return (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1)


train_set, val_set = Circles(320, True), Circles(40, False)
net = UNet()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=1, factor=0.5)
best = 0.0
for epoch in range(4):
    net.train()
    for step, (x, y) in enumerate(DataLoader(train_set, 8, shuffle=True, num_workers=0)):
        out = net(x)
        loss = F.binary_cross_entropy_with_logits(out, y) + 1 - dice(out.sigmoid() - 0.5, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
    net.eval()
    with torch.no_grad():
        score = torch.stack([dice(net(x), y) for x, y in DataLoader(val_set, 20)]).mean()
    scheduler.step(score)
    print(f"epoch {epoch} dice {score:.4f} lr {optimizer.param_groups[0]['lr']}")
    if score > best:
        best = score.item()
        torch.save(net.state_dict(), f"unet_epoch{epoch}.pth")
