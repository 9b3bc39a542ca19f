# A residual MLP with warm-up and cosine by LambdaLR, AdamW, gradient norm printed, Python's logging to file and screen.
# expected: exact
# mask: \d\d:\d\d:\d\d,\d+
import logging
import math
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt=None, handlers=[logging.FileHandler("train.log", mode="w"), logging.StreamHandler()])
for handler in logging.getLogger().handlers:
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
log = logging.getLogger("train")
torch.manual_seed(31)


class Residual(nn.Module):
    def __init__(self, d, p):
        super().__init__()
        self.f = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Dropout(p), nn.Linear(2 * d, d))

    def forward(self, x):
        return x + self.f(x)


X = torch.randn(2000, 16)
Y = torch.sin(X[:, :1] * 2) + X[:, 1:2] * X[:, 2:3]
train_dl = DataLoader(TensorDataset(X[:1800], Y[:1800]), 36, shuffle=True)
net = nn.Sequential(nn.Linear(16, 32), *[Residual(32, 0.1) for _ in range(3)], nn.Linear(32, 1))
opt = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.05)
epochs = 10
total, warm = epochs * len(train_dl), 60


def schedule(step):
    if step < warm:
        return step / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))


sched = torch.optim.lr_scheduler.LambdaLR(opt, schedule)
log.info("parameters: %d", sum(p.numel() for p in net.parameters()))
step = 0
for epoch in range(epochs):
    for x, y in train_dl:
        loss = nn.functional.huber_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        sched.step()
        step += 1
        if step % 20 == 0:
            log.info("step %d loss %.5f norm %.4f lr %.2e", step, loss.item(), norm, sched.get_last_lr()[0])
    with torch.no_grad():
        log.info("epoch %d val %.6f", epoch, nn.functional.mse_loss(net.eval()(X[1800:]), Y[1800:]))
    net.train()
print("done", step)
