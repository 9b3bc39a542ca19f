# A siamese network with contrastive loss, pairs made in a collate function, cosine warm restarts, plots as text.
# expected: exact
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(77)
protos = torch.randn(5, 1, 10, 10)
labels = torch.randint(0, 5, (900,))
images = protos[labels] + 0.7 * torch.randn(900, 1, 10, 10)


def pairs(rows):
    x = torch.stack([r[0] for r in rows])
    y = torch.stack([r[1] for r in rows])
    perm = torch.randperm(len(x))
    return x, x[perm], (y == y[perm]).float()


loader = DataLoader(TensorDataset(images, labels), batch_size=30, shuffle=True, collate_fn=pairs)


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 12, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 8))

    def forward(self, a, b):
        return self.cnn(a), self.cnn(b)


def contrastive(a, b, same, margin=1.0):
    d = F.pairwise_distance(a, b)
    return (same * d.pow(2) + (1 - same) * (margin - d).clamp(min=0).pow(2)).mean(), d


model = Siamese()
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=5, T_mult=2)
for epoch in range(15):
    right = total = 0
    curve = []
    for i, (a, b, same) in enumerate(loader):
        loss, d = contrastive(*model(a, b), same)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step(epoch + i / len(loader))
        curve.append(loss.item())
        right += ((d < 0.5).float() == same).sum().item()
        total += len(same)
    bar = "".join(" .:-=+*#%@"[min(9, int(c * 20))] for c in curve)
    print(f"{epoch:3d} |{bar}| acc {right / total:.4f} lr {sched.get_last_lr()[0]:.5f}")
