# Plankton embeddings to species on the accelerator, with a running loss for the progress line.
import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import accelerator

EPOCHS, BATCH = 10, 32


def load():
    g = torch.Generator().manual_seed(21)
    x = torch.randn(3200, 256, generator=g)
    return TensorDataset(x, x[:, :10].argmax(1))


def augment(x):
    for shift in (1, 2, 3, 5, 8, 13):
        x = x + 0.01 * torch.sin(x.roll(shift, 1)).cumsum(1).tanh().sort(1).values
    return x


def train():
    accelerator.configure(fixed_ms=3, sample_ms=0.1)
    torch.manual_seed(21)
    model = accelerator.prepare(nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(load(), batch_size=BATCH, shuffle=True)
    for epoch in range(EPOCHS):
        running = 0.0
        for x, y in loader:
            x, y = accelerator.put(augment(x)), accelerator.put(y)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            running = 0.9 * running + 0.1 * loss.item()
        print(f"epoch {epoch}: running loss {running:.4f}")


if __name__ == "__main__":
    train()
