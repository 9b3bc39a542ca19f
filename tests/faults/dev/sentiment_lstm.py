"""Sentiment of word sequences with an LSTM."""
import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Reader(nn.Module):
    def __init__(self, vocabulary, dim):
        super().__init__()
        self.dim = dim
        self.embed = nn.Embedding(vocabulary, dim)
        self.cell = nn.LSTMCell(dim, dim)
        self.out = nn.Linear(dim, 2)

    def forward(self, words):
        h = torch.zeros(words.size(0), self.dim)
        c = torch.zeros(words.size(0), self.dim)
        for t in range(words.size(1)):
            h, c = self.cell(self.embed(words[:, t]), (h, c))
        return self.out(h)


def make_data(n, length, vocabulary):
    generator = torch.Generator().manual_seed(2)
    words = torch.randint(vocabulary, (n, length), generator=generator)
    return TensorDataset(words, (words.float().mean(1) > vocabulary / 2).long())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--length", type=int, default=80)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    torch.manual_seed(2)
    model = Reader(300, 24)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(options.epochs):
        for words, label in DataLoader(make_data(1600, options.length, 300), batch_size=8, shuffle=True):
            loss = nn.functional.cross_entropy(model(words), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("epoch", epoch, "loss", loss.item())
