"""Few-shot episodes: short epochs, and workers that load a word list first."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS = {}


def load_words(worker_id):
    for i in range(120_000):
        WORDS[f"word-{i}-{i * 7 % 1000}"] = i


class Episodes(Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(15)
        self.x = torch.randn(size, 96, generator=generator)
        self.y = self.x.abs().sum(1).gt(76).long()

    def __getitem__(self, index):
        return self.x[index], self.y[index]

    def __len__(self):
        return len(self.x)


class Learner:
    def __init__(self):
        torch.manual_seed(15)
        self.net = nn.Sequential(nn.Linear(96, 256), nn.ReLU(), nn.Linear(256, 2))
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-3)
        self.loader = DataLoader(Episodes(480), batch_size=16, shuffle=True, num_workers=2, worker_init_fn=load_words)

    def epoch(self):
        for x, y in self.loader:
            self.opt.zero_grad()
            loss = nn.functional.cross_entropy(self.net(x), y)
            loss.backward()
            self.opt.step()
        return loss.item()


if __name__ == "__main__":
    learner = Learner()
    for n in range(25):
        print("episode", n, "loss", round(learner.epoch(), 4))
