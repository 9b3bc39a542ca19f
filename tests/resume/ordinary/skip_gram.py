# Skip-gram with negative sampling on a text of its own: subsampling, a unigram table, sparse or dense embeddings, nearest words as it goes.
# expected: exact
import collections
import math
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(7)
np.random.seed(7)
torch.manual_seed(7)
EMBEDDING_DIM, WINDOW, NEGATIVES, BATCH = 24, 2, 5, 64

subjects, verbs, objects = "cat dog king queen man woman child bird".split(), "sees eats likes follows hears".split(), "bread fish crown ball tree song".split()
corpus = []
for _ in range(700):
    s = random.choice(subjects)
    v = "eats" if s in ("cat", "dog", "bird") and random.random() < 0.6 else random.choice(verbs)
    o = "crown" if s in ("king", "queen") and random.random() < 0.6 else random.choice(objects)
    corpus.append(["the", s, v, "a" if random.random() < 0.5 else "the", o])

counter = collections.Counter(w for line in corpus for w in line)
vocab = [w for w, c in counter.most_common() if c >= 5]
word_to_ix = {w: i for i, w in enumerate(vocab)}
total = sum(counter.values())
keep = {w: min(1.0, math.sqrt(1e-2 * total / counter[w])) for w in vocab}
unigram = np.array([counter[w] for w in vocab], dtype=np.float64) ** 0.75
unigram /= unigram.sum()


def generate_batch(batch_size):
    """Pairs of a sentence order that is drawn anew in each epoch."""
    centers, contexts = [], []
    lines = list(corpus)
    random.shuffle(lines)
    for line in lines:
        ids = [word_to_ix[w] for w in line if w in word_to_ix and random.random() < keep[w]]
        for i, center in enumerate(ids):
            span = random.randint(1, WINDOW)
            for j in range(max(0, i - span), min(len(ids), i + span + 1)):
                if j != i:
                    centers.append(center)
                    contexts.append(ids[j])
                    if len(centers) == batch_size:
                        yield torch.LongTensor(centers), torch.LongTensor(contexts)
                        centers, contexts = [], []


class SkipGramNeg(nn.Module):
    def __init__(self, vocab_size, dim):
        super().__init__()
        self.u = nn.Embedding(vocab_size, dim)
        self.v = nn.Embedding(vocab_size, dim)
        nn.init.uniform_(self.u.weight, -0.5 / dim, 0.5 / dim)
        nn.init.zeros_(self.v.weight)

    def forward(self, center, context, negative):
        u, v = self.u(center), self.v(context)
        positive = F.logsigmoid((u * v).sum(1))
        n = torch.bmm(self.v(negative), u.unsqueeze(2)).squeeze(2)
        return -(positive + F.logsigmoid(-n).sum(1)).mean()


def nearest(model, word, k=3):
    with torch.no_grad():
        w = F.normalize(model.u.weight)
        score = w @ w[word_to_ix[word]]
        best = score.topk(k + 1).indices.tolist()
    return [vocab[i] for i in best if vocab[i] != word][:k]


model = SkipGramNeg(len(vocab), EMBEDDING_DIM)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
losses, step = [], 0
for epoch in range(12):
    running = 0.0
    for center, context in generate_batch(BATCH):
        negative = torch.from_numpy(np.random.choice(len(vocab), size=(len(center), NEGATIVES), p=unigram))
        loss = model(center, context, negative)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        running += loss.item()
        losses.append(loss.item())
        step += 1
        for g in optimizer.param_groups:
            g["lr"] = max(0.05, 0.5 * (1 - step / 1500))
        if step % 100 == 0:
            print(f"step {step} loss {np.mean(losses[-100:]):.4f} lr {optimizer.param_groups[0]['lr']:.4f}")
    print(f"epoch {epoch}: {running:.3f} king ~ {', '.join(nearest(model, 'king'))}; cat ~ {', '.join(nearest(model, 'cat'))}")
np.savetxt("vectors.txt", model.u.weight.detach().numpy(), fmt="%.6f")
with open("vocab.txt", "w") as f:
    f.write("\n".join(vocab))
