# needs: datasets
# expected: exact
"""A table of Hugging Face's datasets, mapped and given as tensors, shuffled by a loader."""
import torch
from datasets import Dataset
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
rows = [{"text": "abc def ghi"[i % 5:], "label": i % 3, "x": [float((i * 7 + k) % 11) for k in range(6)]} for i in range(600)]
data = Dataset.from_list(rows).map(lambda row: {"length": len(row["text"])})
data = data.train_test_split(test_size=0.2, seed=3)
train = data["train"].with_format("torch", columns=["x", "label", "length"])
loader = DataLoader(train, batch_size=16, shuffle=True)
m = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))
o = torch.optim.AdamW(m.parameters(), 1e-3)
for epoch in range(12):
    total = 0.0
    for batch in loader:
        x = torch.cat([batch["x"], batch["length"].unsqueeze(1).float()], 1)
        loss = nn.functional.cross_entropy(m(x), batch["label"])
        o.zero_grad()
        loss.backward()
        o.step()
        total += loss.item()
    print(epoch, f"{total:.6f}", flush=True)
torch.save(m.state_dict(), "m.pt")
