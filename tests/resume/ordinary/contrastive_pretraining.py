# Contrastive pretraining (two augmented views from workers), then a linear probe on frozen features.
# expected: exact
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(25)
proto = torch.randn(6, 24)


class TwoViews(Dataset):
    def __init__(self, n):
        self.y = torch.randint(0, 6, (n,))
        self.x = proto[self.y] + 0.5 * torch.randn(n, 24)

    def __len__(self):
        return len(self.x)

    def view(self, x):
        x = x + 0.3 * torch.randn_like(x)
        return x * (torch.rand_like(x) > 0.1)

    def __getitem__(self, i):
        return self.view(self.x[i]), self.view(self.x[i]), self.y[i]


def nt_xent(a, b, tau=0.3):
    z = F.normalize(torch.cat([a, b]), dim=1)
    sim = z @ z.T / tau
    sim.masked_fill_(torch.eye(len(z), dtype=torch.bool), float("-inf"))
    n = len(a)
    return F.cross_entropy(sim, torch.cat([torch.arange(n, 2 * n), torch.arange(n)]))


data = TwoViews(1000)
loader = DataLoader(data, 40, shuffle=True, num_workers=2, drop_last=True, persistent_workers=True)
encoder = nn.Sequential(nn.Linear(24, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16))
head = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 8))
opt = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], 3e-3)
for epoch in range(9):
    total = 0.0
    for a, b, _ in loader:
        loss = nt_xent(head(encoder(a)), head(encoder(b)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    print(f"pretrain {epoch} {total / len(loader):.5f}", flush=True)
encoder.eval().requires_grad_(False)
probe = nn.Linear(16, 6)
opt = torch.optim.SGD(probe.parameters(), 0.1)
feats = encoder(data.x)
for it in range(300):
    idx = torch.randint(0, len(feats), (64,))
    loss = F.cross_entropy(probe(feats[idx]), data.y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 50 == 0:
        print(f"probe {it} {loss.item():.5f} acc {(probe(feats).argmax(1) == data.y).float().mean():.4f}")
