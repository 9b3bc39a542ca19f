# Negative sampling with sparse gradients: SparseAdam beside Adam, gradients zeroed at the top of a function that makes a step.
# expected: exact
import torch
from torch import nn

torch.manual_seed(0)
words = torch.randint(0, 200, (4000,))
emb = nn.Embedding(200, 16, sparse=True)
ctx = nn.Embedding(200, 16, sparse=True)
head = nn.Linear(16, 16)
sparse = torch.optim.SparseAdam([*emb.parameters(), *ctx.parameters()], lr=1e-2)
dense = torch.optim.Adam(head.parameters(), lr=1e-3)


def step(at):
    sparse.zero_grad()
    dense.zero_grad()
    centre, near = words[at:at + 32], words[at + 1:at + 33]
    far = torch.randint(0, 200, (32, 5))
    v = head(emb(centre))
    close = nn.functional.logsigmoid((v * ctx(near)).sum(1))
    apart = nn.functional.logsigmoid(-(ctx(far) @ v.unsqueeze(2)).squeeze(2)).sum(1)
    loss = -(close + apart).mean()
    loss.backward()
    sparse.step()
    dense.step()
    return loss.item()


total = 0.0
for i in range(900):
    total += step(i * 32 % 3900)
    if i % 50 == 0:
        print(i, total, flush=True)
print("end", total, emb.weight.sum().item(), ctx.weight.grad._nnz())
