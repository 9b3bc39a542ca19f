# Tries: as table_that_drifts, in workers, where each has a table of its own; pandas puts another array in the place of the first.
# needs: pandas
# expected: refused
import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
rng = np.random.default_rng(1)
rows = 300
pd.DataFrame({
    "id": [f"id_{i}" for i in range(rows)], "when": pd.date_range("2024-01-01", periods=rows, freq="h"),
    "a": rng.normal(size=rows), "b": rng.normal(size=rows), "kind": rng.choice(list("xyz"), rows), "label": rng.integers(0, 3, rows),
}).to_csv("rows.csv", index=False)
table = pd.read_csv("rows.csv", parse_dates=["when"])
table["kind"] = table["kind"].astype("category")
table["hour"] = table["when"].dt.hour / 24
table["above"] = table["a"] - table.groupby("kind", observed=True)["a"].transform("mean")


class Rows(Dataset):
    def __init__(self, table):
        self.ids = table["id"].values
        self.table = table.set_index("id")

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        self.table.at[self.ids[index], "b"] += 0.01
        row = self.table.loc[self.ids[index]]
        return torch.tensor(row[["above", "b", "hour"]].to_numpy(dtype=np.float32)), int(row["label"])


loader = DataLoader(Rows(table), 16, shuffle=True, num_workers=2, persistent_workers=True)
net = nn.Sequential(nn.Linear(3, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 3))
opt = torch.optim.Adam(net.parameters(), 1e-3)
results = pd.DataFrame(columns=["epoch", "loss"])
for epoch in range(40):
    losses = []
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    results.loc[len(results)] = [epoch, np.mean(losses)]
    if results["loss"].idxmin() == epoch:
        torch.save(net.state_dict(), "best.pt")
    print(epoch, f"{losses[-1]:.9f}", flush=True)
results.to_csv("results.csv")
torch.save(net.state_dict(), "net.pt")
