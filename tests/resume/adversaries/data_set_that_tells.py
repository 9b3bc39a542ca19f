# Tries: what a data set, its transform and its collate count and note while batches are read, used by the loop: to print, and to end an epoch early.
# expected: exact
import random

import torch
from torch.utils.data import DataLoader, Dataset, Subset

random.seed(1)
torch.manual_seed(1)
lengths = []


class Noise:
    def __init__(self):
        self.drawn, self.last = 0, None

    def __call__(self, x):
        self.drawn += 1
        self.last = random.random()
        return x + 0.01 * self.last


class Words(Dataset):
    def __init__(self, n):
        self.data = [torch.randn(random.randint(3, 9), 6) for _ in range(n)]
        self.transform = Noise()
        self.served, self.cache, self.most = {"all": 0}, {}, 0

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        self.served["all"] += 1
        if i not in self.cache:
            self.cache[i] = float(self.data[i].sum())
        self.most = max(self.most, len(self.data[i]))
        return self.transform(self.data[i]), self.cache[i]


def collate(batch):
    lengths.append(max(len(x) for x, _ in batch))
    return torch.nn.utils.rnn.pad_sequence([x for x, _ in batch], batch_first=True), torch.tensor([y for _, y in batch])


data = Words(200)
loader = DataLoader(Subset(data, range(0, 200, 2)), batch_size=10, shuffle=True, collate_fn=collate)
model = torch.nn.GRU(6, 12, batch_first=True)
head = torch.nn.Linear(12, 1)
opt = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=1e-3)
for epoch in range(40):
    for x, y in loader:
        loss = (head(model(x)[0][:, -1]).squeeze(1) - y).pow(2).mean() / lengths[-1]
        opt.zero_grad()
        loss.backward()
        opt.step()
        if data.served["all"] % 370 == 0 and data.transform.last > 0.3:
            break
    print(epoch, f"{loss.item():.9f}", data.served["all"], data.transform.drawn, len(data.cache), data.most, sum(lengths), flush=True)
torch.save([model.state_dict(), head.state_dict()], "words.pt")
