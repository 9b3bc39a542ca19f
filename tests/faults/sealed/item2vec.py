"""Item embeddings from baskets; a large table and hardly anything else."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Items(nn.Module):
    def __init__(self, items, dim):
        super().__init__()
        self.table = nn.Embedding(items, dim)

    def forward(self, left, right):
        return (self.table(left) * self.table(right)).sum(1)


def negatives(right, items):
    return (right * 7919 + 13) % items


if __name__ == "__main__":
    torch.manual_seed(40)
    ITEMS = 60_000
    left = torch.randint(ITEMS, (6400,))
    right = (left * 31 + 7) % ITEMS
    loader = DataLoader(TensorDataset(left, right), batch_size=128, shuffle=True)
    model = Items(ITEMS, 48)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    log_sigmoid = nn.LogSigmoid()
    for epoch in range(4):
        total = 0.0
        for a, b in loader:
            optimizer.zero_grad(set_to_none=False)
            loss = -(log_sigmoid(model(a, b)) + log_sigmoid(-model(a, negatives(b, ITEMS)))).mean()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.4f}")
