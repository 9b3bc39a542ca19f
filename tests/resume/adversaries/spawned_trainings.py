# Tries: mp.spawn starts the processes that train; the first one only waits for them.
# expected: refused
import torch
import torch.multiprocessing as mp
from torch import nn


def train(rank, steps):
    torch.manual_seed(rank)
    X = torch.randn(320, 8)
    m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    o = torch.optim.Adam(m.parameters(), 1e-2)
    for i in range(steps):
        x = X[(i * 16) % 320:][:16]
        loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
    torch.save(m.state_dict(), f"m{rank}.pt")


if __name__ == "__main__":
    mp.spawn(train, args=(1500,), nprocs=1)
    print("final", sum(p.double().sum().item() for p in torch.load("m0.pt").values()))
