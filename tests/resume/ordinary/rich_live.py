# A table of rich that is drawn anew at each tenth step, and counts in the loop after it was left.
# expected: exact
# needs: rich
# mask: \d:\d\d:\d\d
import torch
from rich.live import Live
from rich.progress import Progress, track
from rich.table import Table
from torch import nn

torch.manual_seed(0)
x = torch.randn(640, 8)
y = x.sum(1, keepdim=True)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
o = torch.optim.AdamW(m.parameters(), 1e-3)


def step(i):
    loss = (m(x[i]) - y[i]).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    return loss.item()


def told(losses):
    table = Table("epoch", "loss")
    for epoch, loss in losses[-5:]:
        table.add_row(str(epoch), f"{loss:.5f}")
    return table


losses = []
with Live(told(losses), refresh_per_second=20) as live:
    for epoch in range(10):
        for n, i in enumerate(torch.randperm(640).split(16)):
            losses.append((epoch, step(i)))
            if n % 10 == 0:
                live.update(told(losses))
for epoch in range(10):
    for i in track(torch.randperm(640).split(16), description="left early"):
        if step(i) < 0.2 * losses[0][1]:
            break
with Progress() as progress:
    task = progress.add_task("last", total=None)
    for i in torch.randperm(640).split(4):
        losses.append((20, step(i)))
        progress.update(task, advance=1, total=len(losses) if len(losses) % 7 == 0 else None)
    print(progress.tasks[task].completed, f"{losses[-1][1]:.6f}")
