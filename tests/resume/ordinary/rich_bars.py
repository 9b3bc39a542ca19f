# A Progress with two bars around the whole training, and a table at the end.
# expected: exact
# needs: rich
# mask: \d:\d\d:\d\d
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from torch import nn

torch.manual_seed(0)
console = Console()
x = torch.randn(640, 8)
y = x.sum(1, keepdim=True)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
o = torch.optim.AdamW(m.parameters(), 1e-3)
history = []
with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(), console=console) as progress:
    outer = progress.add_task("epochs", total=20)
    for epoch in range(20):
        inner = progress.add_task(f"epoch {epoch}", total=40)
        for i in torch.randperm(640).split(16):
            loss = (m(x[i]) - y[i]).pow(2).mean()
            o.zero_grad()
            loss.backward()
            o.step()
            progress.update(inner, advance=1, description=f"loss {loss.item():.3f}")
        history.append(loss.item())
        progress.remove_task(inner)
        progress.advance(outer)
        progress.console.print(f"epoch {epoch}: loss {loss.item():.6f}")
table = Table("epoch", "loss")
for e, l in enumerate(history):
    table.add_row(str(e), f"{l:.5f}")
console.print(table)
