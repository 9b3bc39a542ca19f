# Recordings of different sessions; most are cut already, some are still long and get filtered first.
import time
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader


class Recordings(Dataset):
    def __init__(self, n=4000):
        g = torch.Generator().manual_seed(5)
        self.data = torch.randn(n, 64, generator=g)
        self.long = set(range(17, n, 50))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        x = self.data[i]
        if i in self.long:
            time.sleep(0.12)
            x = x - x.mean()
        return x, i % 3


def main(epochs=4, batch_size=25):
    torch.manual_seed(5)
    train_set = Recordings()
    model = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 3))
    opt = torch.optim.AdamW(model.parameters())
    for epoch in range(epochs):
        loader = DataLoader(train_set, batch_size=batch_size, shuffle=False)
        for step, (x, y) in enumerate(loader):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            if step % 40 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}")


main()
