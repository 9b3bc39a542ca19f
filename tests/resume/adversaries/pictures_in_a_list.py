# Tries: a data set that keeps its pictures of PIL in a list, and transforms them when they are asked for.
# expected: exact
import random

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageOps
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    def __init__(self, count):
        draw = random.Random(0)
        self.pictures, self.labels = [], []
        for n in range(count):
            picture = Image.new("RGB" if n % 3 else "P", (12, 12), draw.randrange(200))
            place = [draw.randrange(4), draw.randrange(4), 7, 9]
            (ImageDraw.Draw(picture).ellipse if n % 2 else ImageDraw.Draw(picture).rectangle)(place, fill=draw.randrange(255))
            self.pictures.append(picture)
            self.labels.append(n % 2)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        picture = self.pictures[index].convert("L")
        if random.random() < 0.5:
            picture = ImageOps.mirror(picture)
        return torch.from_numpy(np.asarray(picture, dtype=np.float32) / 255).flatten(), self.labels[index]


random.seed(0)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(144, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
loader = DataLoader(Shapes(96), batch_size=8, shuffle=True)
for epoch in range(50):
    total = 0.0
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    print(epoch, f"{total:.9f}", flush=True)
torch.save(net.state_dict(), "net.pt")
