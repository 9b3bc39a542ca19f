"""Rents with one scale and one offset for each of many houses, all of them parameters of their own."""
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


class Rents(nn.Module):
    def __init__(self, houses):
        super().__init__()
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(4)) for _ in range(houses))
        self.offsets = nn.ParameterList(nn.Parameter(torch.zeros(4)) for _ in range(houses))
        self.lists = [list(self.scales), list(self.offsets)]

    def forward(self, house, x):
        scale, offset = (torch.stack(parts) for parts in self.lists)
        return (x * scale[house] + offset[house]).sum(1)


def rents(n, houses):
    house, x = torch.randint(houses, (n,)), torch.rand(n, 4)
    return TensorDataset(house, x, x.sum(1) * (1 + house / houses))


if __name__ == "__main__":
    torch.manual_seed(40)
    HOUSES = 600
    data = rents(9600, HOUSES)
    loader = DataLoader(data, sampler=BatchSampler(RandomSampler(data), 64, False), batch_size=None)
    model = Rents(HOUSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, fused=True)
    for epoch in range(4):
        total = 0.0
        for house, x, rent in loader:
            optimizer.zero_grad(set_to_none=False)
            loss = nn.functional.mse_loss(model(house, x), rent)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.4f}")
