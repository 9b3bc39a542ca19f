"""A file in another encoding than the script expects."""
import random
import sys

import torch

rng = random.Random(0)


def load_names(path):
    try:
        return cache[path]
    except KeyError:
        with open(path, encoding="ascii") as file:
            cache[path] = file.read().split()  # here
        return cache[path]


cache = {}
with open("names.txt", "w", encoding="utf-8") as out:
    out.write("Anna Bob Chloé Dörte\n")

model = torch.nn.EmbeddingBag(26, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    idx = torch.tensor([[rng.randrange(26) for _ in range(3)]])
    opt.zero_grad()
    model(idx).sum().backward()
    opt.step()
    print("step", step, idx.tolist())
sys.stdout.flush()
names = load_names("names.txt")
print(len(names))
