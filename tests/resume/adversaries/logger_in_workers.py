# Tries: a logger that data sets and transforms use in loader workers, where libraries make loggers of their own on first use.
# expected: exact
import logging

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(format="%(message)s", level=logging.WARNING)
LOGGER = logging.getLogger("shapes")


class Shapes(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        LOGGER.debug("drawing %d", index)
        if index % 7 == 0:
            logging.getLogger(f"shapes.{index}").info("a new one")
        image = Image.new("L", (8, 8))
        ImageDraw.Draw(image).ellipse([index % 4, 1, 6, 6], fill=50 + index)
        return torch.from_numpy(np.asarray(image, dtype=np.float32) / 255).flatten(), index % 2


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(Shapes(), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
for epoch in range(40):
    total = 0.0
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    print(epoch, f"{total:.9f}", flush=True)
torch.save(net.state_dict(), "net.pt")
