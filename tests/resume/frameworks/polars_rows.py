# needs: polars
# expected: exact
"""A data set over a table of polars."""
import polars as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Rows(Dataset):
    def __init__(self, table):
        self.table = table

    def __len__(self):
        return self.table.height

    def __getitem__(self, i):
        row = self.table.row(i)
        return torch.tensor(row[:-1], dtype=torch.float32), row[-1]


table = pl.DataFrame({f"c{k}": [float((i * 7 + k) % 11) for i in range(600)] for k in range(6)}).with_columns((pl.col("c0") > 5).cast(pl.Int64).alias("y"))
loader = DataLoader(Rows(table), batch_size=16, shuffle=True)
m = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))
o = torch.optim.AdamW(m.parameters(), 1e-3)
for epoch in range(12):
    total = 0.0
    for x, y in loader:
        loss = nn.functional.cross_entropy(m(x), y)
        o.zero_grad()
        loss.backward()
        o.step()
        total += loss.item()
    print(epoch, f"{total:.6f}", flush=True)
torch.save(m.state_dict(), "m.pt")
