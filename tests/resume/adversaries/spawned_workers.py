# Tries: loader workers that are spawned (a new interpreter each), own generator, batches left unread at a break.
# expected: either
# wait: 90
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    def __init__(self):
        self.x = torch.arange(8000.0).view(1000, 8).sin()

    def __len__(self):
        return 1000

    def __getitem__(self, i):
        return self.x[i] + 0.1 * torch.randn(8), self.x[i].sum()


def main():
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(5)
    loader = DataLoader(Data(), 4, shuffle=True, num_workers=1, multiprocessing_context="spawn", generator=g, persistent_workers=True)
    m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    o = torch.optim.Adam(m.parameters(), 1e-3)
    for epoch in range(5):
        for i, (x, y) in enumerate(loader):
            loss = (m(x).squeeze(1) - y).pow(2).mean()
            o.zero_grad()
            loss.backward()
            o.step()
            if i % 25 == 0:
                print(epoch, i, loss.item(), flush=True)
            if i == 180 + epoch:
                break
    print("final", sum(p.double().sum().item() for p in m.parameters()))


if __name__ == "__main__":
    main()
