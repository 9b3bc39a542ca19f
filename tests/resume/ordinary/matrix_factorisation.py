# Recommender by matrix factorisation: embeddings, negative samples by numpy, recall at k.
# expected: exact
import numpy as np
import torch
from torch import nn

np.random.seed(0)
torch.manual_seed(0)
n_users, n_items, k = 120, 200, 16
true_u, true_i = np.random.randn(n_users, 4), np.random.randn(n_items, 4)
scores = true_u @ true_i.T
pos = [np.argsort(-s)[:12] for s in scores]


class MF(nn.Module):
    def __init__(self):
        super().__init__()
        self.u, self.i = nn.Embedding(n_users, k), nn.Embedding(n_items, k)
        self.bias = nn.Embedding(n_items, 1)
        nn.init.normal_(self.u.weight, std=0.05)
        nn.init.normal_(self.i.weight, std=0.05)

    def forward(self, u, i):
        return (self.u(u) * self.i(i)).sum(-1) + self.bias(i).squeeze(-1)


def sample(batch=128):
    u = np.random.randint(0, n_users, batch)
    p = np.array([pos[x][np.random.randint(12)] for x in u])
    n = np.random.randint(0, n_items, batch)
    return torch.from_numpy(u), torch.from_numpy(p), torch.from_numpy(n)


def recall(model, at=20):
    with torch.no_grad():
        all_scores = model.u.weight @ model.i.weight.T + model.bias.weight.T
        top = all_scores.topk(at).indices.numpy()
    return np.mean([len(set(t) & set(p)) / len(p) for t, p in zip(top, pos)])


model = MF()
opt = torch.optim.Adagrad(model.parameters(), lr=0.1)
best = 0
for step in range(1, 1201):
    u, p, n = sample()
    loss = -torch.log(torch.sigmoid(model(u, p) - model(u, n)) + 1e-8).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 60 == 0:
        r = recall(model)
        best = max(best, r)
        print(f"step {step:5d} bpr {loss.item():.4f} recall@20 {r:.4f} best {best:.4f}")
np.save("items.npy", model.i.weight.detach().numpy())
