# A prefetcher that holds one batch ahead, held by nothing but the for statement; weights swapped for their average in a with block.
# expected: exact
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(12)


class Waves(Dataset):
    def __len__(self):
        return 960

    def __getitem__(self, i):
        phase = torch.rand(1)
        t = torch.linspace(0, 6.28, 16)
        return torch.sin(t * (1 + i % 4) + phase) + 0.1 * torch.randn(16), i % 4


class Prefetcher:
    def __init__(self, loader):
        self.source, self.count = iter(loader), 0
        self.preload()

    def preload(self):
        try:
            self.x, self.y = next(self.source)
            self.x = (self.x - self.x.mean()) * 0.8
        except StopIteration:
            self.x = self.y = None

    def __iter__(self):
        return self

    def __next__(self):
        x, y = self.x, self.y
        if x is None:
            raise StopIteration
        self.count += 1
        self.preload()
        return x, y


class Averaged:
    def __init__(self, model, average):
        self.model, self.average = model, average
        self.backup = [p.detach().clone() for p in model.parameters()]

    def __enter__(self):
        for p, a in zip(self.model.parameters(), self.average):
            p.data.copy_(a)

    def __exit__(self, *error):
        for p, b in zip(self.model.parameters(), self.backup):
            p.data.copy_(b)


model = nn.Sequential(nn.Linear(16, 48), nn.Tanh(), nn.Dropout(0.1), nn.Linear(48, 4))
average = [p.detach().clone() for p in model.parameters()]
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
loader = DataLoader(Waves(), 16, shuffle=True, num_workers=2)
step = 0
for epoch in range(9):
    for x, y in Prefetcher(loader):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for p, a in zip(model.parameters(), average):
            a.mul_(0.95).add_(p.detach(), alpha=0.05)
        step += 1
        if step % 15 == 0:
            print(f"{step} {loss.item():.6f}", flush=True)
    with Averaged(model, average):
        model.eval()
        right = total = 0
        for x, y in Prefetcher(DataLoader(Waves(), 64)):
            with torch.no_grad():
                right += (model(x).argmax(1) == y).sum().item()
            total += len(y)
        model.train()
    print(f"epoch {epoch}: {right / total:.4f}", flush=True)
