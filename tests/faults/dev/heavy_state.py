"""A wide two-layer model with Adam; asked for the largest batch that fits."""
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--width", type=int, default=6000)
parser.add_argument("--epochs", type=int, default=2)


def main(args):
    torch.manual_seed(33)
    x = torch.randn(1280, 512)
    loader = DataLoader(TensorDataset(x, x[:, :1] * 2), batch_size=args.batch_size, shuffle=True)
    model = nn.Sequential(nn.Linear(512, args.width), nn.ReLU(), nn.Linear(args.width, 512), nn.ReLU(), nn.Linear(512, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for epoch in range(args.epochs):
        for a, b in loader:
            loss = nn.functional.mse_loss(model(a), b)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print("epoch", epoch, "loss", loss.item())


if __name__ == "__main__":
    main(parser.parse_args())
