# Ranking model with many small layers; was hunted for a NaN last week.
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.autograd.set_detect_anomaly(True)
torch.manual_seed(19)


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.towers = nn.ModuleList([nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16)) for _ in range(12)])
        self.score = nn.Linear(16, 1)

    def forward(self, pair):
        h = pair
        for tower in self.towers:
            h = h + 0.1 * tower(h)
        return self.score(h).squeeze(-1)


left, right = torch.randn(6400, 16), torch.randn(6400, 16)
better = torch.where(left[:, 0] > right[:, 0], 1.0, -1.0)
loader = DataLoader(TensorDataset(left, right, better), batch_size=32, shuffle=True)
model = Ranker()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(4):
    total = 0.0
    for a, b, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.margin_ranking_loss(model(a), model(b), y, margin=0.2)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"{epoch}: {total / len(loader):.4f}")
