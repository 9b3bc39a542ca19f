# Tries: samplers of the script's own whose attributes it prints in its loop: an endless batch sampler that counts epochs and keeps a queue,
# one that counts what it drew while workers prefetch, one within torch's BatchSampler that remembers its last index.
# expected: exact
import random

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Sampler, TensorDataset

torch.manual_seed(0)


class Endless(Sampler):
    def __init__(self, count, size):
        self.order, self.size = list(range(count)), size
        self.rng, self.queue, self.epoch = random.Random(3), [], 0

    def refill(self):
        self.rng.shuffle(self.order)
        for i in range(0, len(self.order), self.size):
            self.queue.append(self.order[i:i + self.size])
        self.epoch += 1

    def __iter__(self):
        while True:
            if not self.queue:
                self.refill()
            yield self.queue.pop()


class Telling(Sampler):
    def __init__(self, count):
        self.count, self.drawn, self.last = count, 0, None

    def __len__(self):
        return self.count

    def __iter__(self):
        for i in torch.randperm(self.count).tolist():
            self.drawn += 1
            self.last = i
            yield i


X = torch.randn(320, 8)
data = TensorDataset(X, X.sum(1))
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
adam = torch.optim.Adam(net.parameters(), 1e-2)
endless, telling, inner = Endless(320, 16), Telling(320), Telling(160)


def train(x, y):
    loss = (net(x).squeeze(1) - y).pow(2).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
    return loss.item()


for i, (x, y) in enumerate(DataLoader(data, batch_sampler=endless), 1):
    loss = train(x, y)
    if i % 25 == 0:
        print("endless", i, loss, endless.epoch, flush=True)
    if i == 300:
        break
for epoch in range(12):
    for i, (x, y) in enumerate(DataLoader(data, batch_size=16, sampler=telling, num_workers=1)):
        loss = train(x, y)
        if i % 7 == 0:
            print("telling", epoch, i, loss, telling.drawn > 0, flush=True)
    print(telling.drawn, telling.last)
    for x, y in DataLoader(data, batch_sampler=BatchSampler(inner, 16, False)):
        train(x, y)
        print(inner.drawn, inner.last)
print("end", sum(p.sum().item() for p in net.parameters()), endless.epoch, telling.drawn, inner.drawn)
