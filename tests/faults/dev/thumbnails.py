"""Classify photos by their dominant texture. The photos are kept encoded in memory and scaled to 48 pixels."""
import io

import numpy as np
import torch
from PIL import Image
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset

SIDE = 48
rng = np.random.default_rng(7)


def make_photo(label):
    coarse = rng.integers(0, 255, (4 * (label + 1), 4 * (label + 1), 3), dtype=np.uint8)
    picture = Image.fromarray(coarse).resize((320, 240), Image.NEAREST)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


class Photos(Dataset):
    def __init__(self, count=640):
        self.labels = [i % 4 for i in range(count)]
        originals = [make_photo(label) for label in range(4) for _ in range(8)]
        self.photos = [originals[label * 8 + i % 8] for i, label in enumerate(self.labels)]

    def __len__(self):
        return len(self.photos)

    def __getitem__(self, index):
        picture = Image.open(io.BytesIO(self.photos[index])).convert("RGB")
        picture = picture.resize((SIDE, SIDE), Image.LANCZOS)
        array = np.asarray(picture, dtype=np.float32) / 255.0
        return torch.from_numpy(array.transpose(2, 0, 1).copy()), self.labels[index]


torch.manual_seed(0)
loader = DataLoader(Photos(), batch_size=16, shuffle=True)
net = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(200, 4))
opt = optim.Adam(net.parameters(), lr=3e-3)
criterion = nn.CrossEntropyLoss()

for epoch in range(8):
    losses = []
    for x, y in loader:
        loss = criterion(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    print("epoch", epoch, "loss", round(sum(losses) / len(losses), 4))
