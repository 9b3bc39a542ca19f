# Tries: every op whose result has a shape that depends on data; Python sees only the shapes.
# short: yes
# expected: either
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 1e-2)
score = 0
for i in range(600):
    x = X[(i * 16) % 320:][:16]
    out = m(x).squeeze(1)
    loss = (out - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    d = out.detach()
    k = (d * 3).long().clamp(0, 12)
    lens = k.clamp(1, 8)
    shapes = [d[d > 0], d.nonzero(), torch.unique(k), torch.bincount(k), nn.functional.one_hot(k), d.masked_select(d < 0.5), torch.repeat_interleave(d, k),
              torch.where(d > 0.3)[0], torch.unique_consecutive(k), torch.argwhere(d > 1), x[:, :1].expand(16, 4)[:, : lens[0]], torch.ones(k.max() + 1),
              pack_padded_sequence(x[:, :, None], lens, batch_first=True, enforce_sorted=False).data, pad_sequence([d[:n] for n in lens]), d.topk(lens[1])[0],
              torch.histogram(d, int(lens[2]))[0], torch.linspace(0, 1, lens[3]), torch.combinations(d[d > 1]), d.to_sparse().values(), torch.nonzero_static(d, size=5)]
    sizes = [len(s) + s.numel() for s in shapes]
    score = (score * 7 + sum(n * (j + 1) for j, n in enumerate(sizes))) % 1009
    o.param_groups[0]["lr"] = 1e-2 / (1 + score * 0.01)
    if i % 20 == 0:
        print(i, loss.item(), score, sizes, flush=True)
print("final", score, sum(p.double().sum().item() for p in m.parameters()))
