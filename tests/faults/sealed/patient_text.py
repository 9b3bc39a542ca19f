"""Text classifier on the accelerator: tokens made beforehand, padding in collate, a report each 50 steps."""
import os
import random
import sys

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import accelerator


def corpus(n):
    rng = random.Random(4)
    return [(torch.tensor([rng.randrange(1, 400) for _ in range(rng.randint(12, 16))]), i % 5) for i in range(n)]


def collate(batch):
    return pad_sequence([t for t, _ in batch], batch_first=True), torch.tensor([y for _, y in batch])


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(400, 32, padding_idx=0), nn.Linear(32, 5)

    def forward(self, tokens):
        return self.out(self.embed(tokens).mean(1))


def main():
    accelerator.configure(fixed_ms=4, sample_ms=0.5)
    torch.manual_seed(4)
    model = accelerator.prepare(Bag())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(corpus(3200), batch_size=32, shuffle=True, collate_fn=collate)
    step = 0
    for epoch in range(4):
        for tokens, labels in loader:
            loss = nn.functional.cross_entropy(model(accelerator.put(tokens)), accelerator.put(labels))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 50 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
