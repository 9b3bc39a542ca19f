# Click-through model on the accelerator.
import argparse
import os
import sys
import torch
from torch.utils.data import DataLoader, Dataset

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import accelerator


class Clicks(Dataset):
    def __init__(self, n):
        generator = torch.Generator().manual_seed(30)
        self.features = torch.randn(n, 32, generator=generator)
        self.clicked = (self.features[:, 0] > 0.3).float()

    def __len__(self):
        return len(self.features)

    def __getitems__(self, indices):
        return [(self.features[i], self.clicked[i]) for i in indices]

    def __getitem__(self, index):
        return self.features[index], self.clicked[index]


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    return parser.parse_args()


args = parse()
accelerator.configure(fixed_ms=6, sample_ms=0.02)
torch.manual_seed(30)
model = accelerator.prepare(torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Clicks(6400), args.batch_size, shuffle=True)
for epoch in range(args.epochs):
    total = torch.zeros(())
    for x, y in loader:
        x, y = accelerator.put(x), accelerator.put(y)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = total + loss.detach()
    print("epoch", epoch, "loss", float(total) / len(loader))
