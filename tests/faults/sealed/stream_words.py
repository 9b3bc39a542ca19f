# Streams text windows from an iterable dataset, with two workers.
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Windows(IterableDataset):
    def __init__(self, text, width):
        self.text, self.width = text, width

    def __iter__(self):
        for start in range(0, len(self.text) - self.width - 1, self.width):
            chunk = self.text[start:start + self.width + 1]
            yield chunk[:-1], chunk[1:]


class Model(nn.Module):
    def __init__(self, vocabulary=64, dim=64):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocabulary)

    def forward(self, x):
        return self.out(self.gru(self.embed(x))[0])


def main():
    torch.manual_seed(71)
    text = (torch.arange(40_000) * 37 % 61 + torch.arange(40_000) // 100 % 3) % 64
    loader = DataLoader(Windows(text, 32), batch_size=16, num_workers=2)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(3):
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}, {step + 1} steps, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
