# Trains from dictionaries; one of them lacks a column.
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Customers(Dataset):
    columns = ("age", "income", "visits", "returns")

    def __init__(self, n=1600):
        self.rows = [{c: (i * (k + 3) % 17) / 17 for k, c in enumerate(self.columns)} for i in range(n)]
        del self.rows[400]["visits"]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        return torch.tensor([row[c] for c in self.columns]), torch.tensor([row["income"] * 2])


def main():
    torch.manual_seed(123)
    loader = DataLoader(Customers(), batch_size=16)
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(10):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
