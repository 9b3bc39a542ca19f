# Four hundred little experts, one for each patch of a picture.
import argparse
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Experts(nn.Module):
    def __init__(self, count, width):
        super().__init__()
        self.scale = nn.ParameterList([nn.Parameter(torch.ones(width)) for _ in range(count)])
        self.shift = nn.ParameterList([nn.Parameter(torch.zeros(width)) for _ in range(count)])
        self.out = nn.Linear(width, 5)

    def forward(self, x):
        scale, shift = torch.stack(list(self.scale)), torch.stack(list(self.shift))
        return self.out(torch.tanh(x * scale + shift).mean(1))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument('--experts', type=int, default=400)
    cli.add_argument('--epochs', type=int, default=5)
    opt = cli.parse_args()
    torch.manual_seed(25)
    patches = torch.randn(640, opt.experts, 8)
    labels = patches.mean(1)[:, :5].argmax(1)
    loader = DataLoader(TensorDataset(patches, labels), batch_size=16, shuffle=True)
    model = Experts(opt.experts, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    for epoch in range(opt.epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        print('epoch', epoch, 'loss', loss.item())


main()
