# Random crops, flips and noise on noisy pictures.
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Augmented(Dataset):
    def __init__(self, n=640):
        g = torch.Generator().manual_seed(1)
        self.pictures = torch.rand(n, 3, 40, 40, generator=g)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, i):
        x = self.pictures[i]
        top, left = torch.randint(8, (2,)).tolist()
        x = x[:, top:top + 32, left:left + 32]
        if torch.rand(()) < 0.5:
            x = x.flip(2)
        for _ in range(3):
            x = x + 0.02 * torch.randn_like(x).cumsum(2).tanh()
        return x, i % 4


torch.manual_seed(203)
model = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 7 * 7, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = DataLoader(Augmented(), batch_size=16, shuffle=True)
for epoch in range(3):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / len(loader):.6f}")
