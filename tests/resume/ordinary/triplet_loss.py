# Metric learning with triplets: a dataset that draws positives and negatives with Python's random, nearest-neighbour accuracy.
# expected: exact
import random
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

random.seed(21)
torch.manual_seed(21)
centres = torch.randn(12, 16) * 1.5


class TripletData(Dataset):
    def __init__(self, per_class=30):
        self.x = torch.cat([c + torch.randn(per_class, 16) for c in centres])
        self.y = torch.arange(12).repeat_interleave(per_class)
        self.by_class = {c: (self.y == c).nonzero().flatten().tolist() for c in range(12)}

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        y = int(self.y[i])
        p = random.choice(self.by_class[y])
        n = random.choice(self.by_class[random.choice([c for c in range(12) if c != y])])
        return self.x[i], self.x[p], self.x[n]


data = TripletData()
loader = DataLoader(data, batch_size=24, shuffle=True, drop_last=True)
net = nn.Sequential(nn.Linear(16, 64), nn.PReLU(), nn.Linear(64, 8))
criterion = nn.TripletMarginLoss(margin=1.0)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-4)


def accuracy():
    net.eval()
    with torch.no_grad():
        e = net(data.x)
        d = torch.cdist(e, e)
        d.fill_diagonal_(float("inf"))
        right = (data.y[d.argmin(1)] == data.y).float().mean()
    net.train()
    return right


for epoch in range(25):
    losses, active = [], 0
    for a, p, n in loader:
        loss = criterion(net(a), net(p), net(n))
        if loss.item() == 0:
            continue
        active += 1
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print("epoch %2d  loss %.5f  active %d  nn-acc %.4f" % (epoch, sum(losses) / max(1, len(losses)), active, accuracy()), flush=True)
torch.save(net, "net_whole.pt") if False else torch.save(net.state_dict(), "net.pt")
