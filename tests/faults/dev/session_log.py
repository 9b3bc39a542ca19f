"""Next-click prediction over a log that must be read in its order: sessions are carried from line to line."""
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class SessionLog(IterableDataset):
    def __init__(self, lines):
        self.lines = lines

    def __iter__(self):
        last_seen = {}
        for i in range(self.lines):
            user, page = i * 7 % 50, (i * i + i // 9) % 30
            before = last_seen.get(user, 0)
            last_seen[user] = page
            yield torch.tensor([user, before]), page


class Clicks(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.page = nn.Embedding(50, 16), nn.Embedding(30, 16)
        self.out = nn.Linear(32, 30)

    def forward(self, x):
        return self.out(torch.cat([self.user(x[:, 0]), self.page(x[:, 1])], 1))


if __name__ == "__main__":
    torch.manual_seed(202)
    model = Clicks()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(SessionLog(3200), batch_size=32)
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("epoch", epoch, "loss", loss.item())
