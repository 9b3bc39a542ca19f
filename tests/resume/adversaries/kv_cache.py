# Tries: sampling in the middle of training with caches of a class of the script's own, made and dropped in modules
# expected: exact
import torch
from torch import nn

torch.manual_seed(0)


class Cache:
    def __init__(self):
        self.k = None

    def add(self, k):
        self.k = k if self.k is None else torch.cat([self.k, k], 1)
        return self.k


class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.cache = None

    def forward(self, x, generating=False):
        k = self.k(x)
        if generating:
            if self.cache is None:
                self.cache = Cache()
            k = self.cache.add(k)
        return torch.softmax(self.q(x) @ k.transpose(1, 2), -1).sum(-1, keepdim=True) * self.v(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.at, self.head = nn.Embedding(16, 8), Attention(8), nn.Linear(8, 16)

    def forward(self, x, generating=False):
        return self.head(self.at(self.e(x), generating))

    @torch.no_grad()
    def generate(self, n):
        x = torch.zeros(1, 1, dtype=torch.long)
        out = []
        for _ in range(n):
            x = torch.multinomial(self(x, True)[:, -1].softmax(-1), 1)
            out.append(x.item())
        self.at.cache = None
        return out


X = torch.randint(0, 16, (320, 9))
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-3)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = nn.functional.cross_entropy(m(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 50 == 0:
        print(i, loss.item(), m.generate(5), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
