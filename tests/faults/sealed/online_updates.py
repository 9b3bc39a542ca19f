# Updates after every two ratings, as the live system does it.
import torch
import torch.nn as nn
from torch.utils.data import TensorDataset, DataLoader

torch.manual_seed(88)
users, films = 300, 200
u = torch.randint(users, (9600,))
f = torch.randint(films, (9600,))
stars = ((u * 3 + f * 5) % 5).float() / 4


class Factors(nn.Module):
    def __init__(self, k=16):
        super().__init__()
        self.u, self.f = nn.Embedding(users, k), nn.Embedding(films, k)
        self.mix = nn.Sequential(nn.Linear(2 * k, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, u, f):
        return self.mix(torch.cat([self.u(u), self.f(f)], 1)).squeeze(1)


def main():
    batch_size = 2
    model = Factors()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(u, f, stars), batch_size=batch_size, shuffle=True)
    for epoch in range(3):
        total = 0.0
        for a, b, y in loader:
            loss = ((model(a, b) - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(y)
        print(f"epoch {epoch} mse {total / len(u):.5f}")


main()
