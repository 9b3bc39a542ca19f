# Sprites of a game, kept as PNG bytes, for a small classifier.
import io
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset


def draw(i):
    y, x = np.mgrid[0:96, 0:96]
    wave = (np.sin(x / (3 + i % 6)) + np.cos(y / (2 + i % 9)) + 2) * 60
    noise = np.random.default_rng(i).integers(0, 15, (96, 96))
    picture = np.stack([wave, wave[::-1], wave.T], -1) + noise[..., None]
    out = io.BytesIO()
    Image.fromarray(picture.astype(np.uint8)).save(out, 'PNG', compress_level=1)
    return out.getvalue()


class Sprites(Dataset):
    def __init__(self, n):
        self.png = [draw(i) for i in range(n)]

    def __len__(self):
        return len(self.png)

    def load(self, i):
        with Image.open(io.BytesIO(self.png[i])) as picture:
            return torch.from_numpy(np.array(picture)).permute(2, 0, 1)

    def __getitem__(self, i):
        return self.load(i), i % 6


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(3 * 12 * 12, 48), torch.nn.Linear(48, 6)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(F.avg_pool2d(x.float() / 255, 8).flatten(1))))


torch.manual_seed(31)
net = Net()
sgd = torch.optim.SGD(net.parameters(), lr=0.05)
train = DataLoader(Sprites(160), batch_size=16, shuffle=True)
for epoch in range(40):
    for images, kinds in train:
        sgd.zero_grad()
        loss = F.cross_entropy(net(images), kinds)
        loss.backward()
        sgd.step()
    if epoch % 5 == 0:
        print(epoch, loss.item())
