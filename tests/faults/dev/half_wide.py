"""Wide classifier in bfloat16 with a fused optimizer and batches straight from memory."""
import argparse

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def make_loader(batch):
    x = torch.randn(8192, 128).bfloat16()
    data = TensorDataset(x, x[:, :16].argmax(1))
    return DataLoader(data, sampler=BatchSampler(RandomSampler(data), batch, True), batch_size=None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(101)
    loader = make_loader(args.batch)
    model = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 16)).bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, fused=True)
    for epoch in range(args.epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x).float(), y)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
