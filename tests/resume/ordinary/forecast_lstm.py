# Time series by an LSTM: windows made by a generator function, scaler of the script's own, validation walk-forward, plateau.
# expected: exact
import math
import random
import torch
from torch import nn

random.seed(27)
torch.manual_seed(27)
series = torch.tensor([math.sin(i / 9) + 0.3 * math.sin(i / 3.1) + random.gauss(0, 0.05) for i in range(1500)])


class Scaler:
    def fit(self, x):
        self.m, self.s = x.mean(), x.std()
        return self

    def __call__(self, x):
        return (x - self.m) / self.s


scale = Scaler().fit(series[:1100])
data = scale(series)


def windows(lo, hi, size=24, batch=16, shuffle=True):
    starts = list(range(lo, hi - size - 1))
    if shuffle:
        random.shuffle(starts)
    for i in range(0, len(starts) - batch, batch):
        s = starts[i:i + batch]
        yield torch.stack([data[j:j + size] for j in s]).unsqueeze(-1), torch.stack([data[j + size] for j in s])


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 24, num_layers=2, dropout=0.1, batch_first=True)
        self.fc = nn.Linear(24, 1)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.fc(out[:, -1]).squeeze(-1)


model = Forecaster()
opt = torch.optim.Adam(model.parameters(), 5e-3)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=1, factor=0.5)
for epoch in range(4):
    model.train()
    total = count = 0
    for x, y in windows(0, 1100):
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        total, count = total + loss.item(), count + 1
        if count % 16 == 0:
            print(f"  {count} {total / count:.5f}", flush=True)
    model.eval()
    with torch.no_grad():
        errors = [nn.functional.mse_loss(model(x), y) for x, y in windows(1100, 1400, shuffle=False)]
    val = torch.stack(errors).mean()
    plateau.step(val)
    print(f"epoch {epoch}: train {total / count:.6f} val {val:.6f} lr {opt.param_groups[0]['lr']:.5f}")
