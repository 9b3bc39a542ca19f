# Skip-gram with negative sampling over a made-up corpus: a vocabulary by Counter, python's random for windows, sparse embeddings.
# expected: exact
import random
from collections import Counter
import torch
import torch.nn as nn
import torch.optim as optim

random.seed(4)
torch.manual_seed(4)
corpus = []
for _ in range(500):
    topic = random.choice(["sea", "sky", "earth"])
    corpus.append([f"{topic}{random.randint(0, 7)}" if random.random() < 0.8 else f"the{random.randint(0, 3)}" for _ in range(10)])
counts = Counter(w for s in corpus for w in s)
vocab = [w for w, _ in counts.most_common()]
index = {w: i for i, w in enumerate(vocab)}
weights = torch.tensor([counts[w] ** 0.75 for w in vocab])


class SkipGram(nn.Module):
    def __init__(self, n, dim=24):
        super().__init__()
        self.inp = nn.Embedding(n, dim, sparse=True)
        self.out = nn.Embedding(n, dim, sparse=True)

    def forward(self, c, o, neg):
        v = self.inp(c)
        good = (v * self.out(o)).sum(1)
        bad = torch.bmm(self.out(neg), v.unsqueeze(2)).squeeze(2)
        return -(nn.functional.logsigmoid(good) + nn.functional.logsigmoid(-bad).sum(1)).mean()


def pairs():
    for s in random.sample(corpus, len(corpus)):
        for i, w in enumerate(s):
            r = random.randint(1, 3)
            for j in range(max(0, i - r), min(len(s), i + r + 1)):
                if j != i:
                    yield index[w], index[s[j]]


def batches(size=128):
    buf = []
    for p in pairs():
        buf.append(p)
        if len(buf) == size:
            yield torch.tensor(buf)
            buf = []


model = SkipGram(len(vocab))
opt = optim.SparseAdam(list(model.parameters()), lr=0.005)
for epoch in range(4):
    running = 0.0
    for n, b in enumerate(batches(), 1):
        neg = torch.multinomial(weights, len(b) * 5, replacement=True).view(len(b), 5)
        loss = model(b[:, 0], b[:, 1], neg)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.item()
        if n % 40 == 0:
            print(f"{epoch} {n} {running / n:.5f}")
    w = nn.functional.normalize(model.inp.weight.detach())
    near = (w @ w[index["sea0"]]).topk(5).indices.tolist()
    print("sea0 ~", [vocab[i] for i in near])
