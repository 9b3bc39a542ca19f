# A class that keeps an exponential average of the weights, applied for evaluation and undone after; checkpoints of both.
# short: yes
# expected: exact
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class EMA:
    def __init__(self, model, decay):
        self.model, self.decay = model, decay
        self.shadow, self.backup = {}, {}
        for name, p in model.named_parameters():
            if p.requires_grad:
                self.shadow[name] = p.data.clone()

    def update(self):
        for name, p in self.model.named_parameters():
            if p.requires_grad:
                self.shadow[name] = ((1.0 - self.decay) * p.data + self.decay * self.shadow[name]).clone()

    def apply_shadow(self):
        for name, p in self.model.named_parameters():
            if p.requires_grad:
                self.backup[name] = p.data
                p.data = self.shadow[name]

    def restore(self):
        for name, p in self.model.named_parameters():
            if p.requires_grad:
                p.data = self.backup[name]
        self.backup = {}


torch.manual_seed(22)
X = torch.rand(1500, 2) * 4 - 2
Y = ((X.norm(dim=1) * 2).long() % 2)
loader = DataLoader(TensorDataset(X, Y), 30, shuffle=True)
net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
opt = torch.optim.Adam(net.parameters(), 3e-3)
ema = EMA(net, 0.99)
best = 0
for epoch in range(16):
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update()
    with torch.no_grad():
        raw = (net(X).argmax(1) == Y).float().mean().item()
        ema.apply_shadow()
        avg = (net(X).argmax(1) == Y).float().mean().item()
        if avg > best:
            best = avg
            torch.save({"ema": ema.shadow, "raw": ema.backup, "epoch": epoch}, "ema.pt")
        ema.restore()
    print(f"{epoch} raw {raw:.4f} ema {avg:.4f} best {best:.4f} loss {loss.item():.5f}", flush=True)
