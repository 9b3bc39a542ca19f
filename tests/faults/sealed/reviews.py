"""Bag-of-words sentiment from raw review texts."""
import random
import re
from collections import Counter

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS = "good bad fine awful great poor happy sad plot actor scene music camera light story ending start slow quick loud".split()


def write_review(rng):
    return " ".join(rng.choice(WORDS) + rng.choice(["", ",", ".", "!", "?", "ing", "ed"]) for _ in range(220)).capitalize()


class Reviews(Dataset):
    pattern = re.compile(r"[a-z]+|[.,!?]")

    def __init__(self, size, seed=5):
        rng = random.Random(seed)
        self.texts = [write_review(rng) for _ in range(size)]
        counts = Counter(token for text in self.texts[:200] for token in self.tokenise(text))
        self.vocabulary = {token: i for i, (token, _) in enumerate(counts.most_common())}

    def tokenise(self, text):
        tokens = self.pattern.findall(text.lower())
        return [re.sub(r"(ing|ed)$", "", token) for token in tokens]

    def encode(self, text):
        vector = torch.zeros(len(self.vocabulary))
        for token in self.tokenise(text):
            if token in self.vocabulary:
                vector[self.vocabulary[token]] += 1
        return vector

    def __getitem__(self, i):
        text = self.texts[i]
        return self.encode(text), float(text.count("good") > text.count("bad"))

    def __len__(self):
        return len(self.texts)


def main():
    torch.manual_seed(5)
    data = Reviews(2000)
    loader = DataLoader(data, batch_size=20, shuffle=True)
    net = nn.Sequential(nn.Linear(len(data.vocabulary), 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(6):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(net(x).squeeze(1), y.float())
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
