# Mean teacher: a labelled and an unlabelled loader in step, the endless one by a generator, consistency weight ramped up.
# expected: exact
import copy
import math
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.manual_seed(28)
X = torch.randn(1400, 12)
Y = ((X[:, 0] + X[:, 1] ** 2) > 0.8).long()
labelled = DataLoader(TensorDataset(X[:200], Y[:200]), batch_sampler=BatchSampler(RandomSampler(range(200)), 10, drop_last=True))
unlabelled = DataLoader(TensorDataset(X[200:1200]), 30, shuffle=True)


def forever(loader):
    while True:
        for batch in loader:
            yield batch


student = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 2))
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.detach_()
opt = torch.optim.Adam(student.parameters(), 2e-3)
stream, step, steps = forever(unlabelled), 0, 700
meter = {"sup": 0.0, "con": 0.0}
while step < steps:
    for x, y in labelled:
        (u,) = next(stream)
        sup = F.cross_entropy(student(x), y)
        with torch.no_grad():
            goal = teacher(u + 0.1 * torch.randn_like(u)).softmax(1)
        con = F.mse_loss(student(u + 0.1 * torch.randn_like(u)).softmax(1), goal)
        weight = 5 * math.exp(-5 * (1 - min(1, step / 300)) ** 2)
        loss = sup + weight * con
        opt.zero_grad()
        loss.backward()
        opt.step()
        alpha = min(1 - 1 / (step + 1), 0.99)
        for t, s in zip(teacher.parameters(), student.parameters()):
            t.data.mul_(alpha).add_(s.data, alpha=1 - alpha)
        meter["sup"] += sup.item()
        meter["con"] += con.item()
        step += 1
        if step % 50 == 0:
            teacher.eval()
            acc = (teacher(X[1200:]).argmax(1) == Y[1200:]).float().mean()
            teacher.train()
            print(f"{step} sup {meter['sup'] / 50:.5f} con {meter['con'] / 50:.6f} teacher {acc:.4f}", flush=True)
            meter = dict.fromkeys(meter, 0.0)
        if step >= steps:
            break
