# Tries: sparse gradients that add up over two steps, and lie in the memory of a batch that the script then changes in place; one that is
# zeroed and not dropped; an embedding whose gradient is sparse in one step and dense in another.
# expected: either
import torch
from torch import nn

torch.manual_seed(0)
emb, kept, tied = nn.Embedding(100, 8, sparse=True), nn.Embedding(100, 8, sparse=True), nn.Embedding(100, 8, sparse=True)
head = nn.Linear(8, 1)
rows = torch.optim.SGD([*emb.parameters(), *kept.parameters(), *tied.parameters()], lr=0.05)
adam = torch.optim.Adam(head.parameters(), lr=1e-3)
batch = torch.randint(0, 100, (16,))
for i in range(1, 701):
    batch.add_(7).remainder_(100)
    out = head(emb(batch) + kept(batch) * 0.5 + tied(batch)).squeeze(1)
    loss = (out - batch / 50).pow(2).mean()
    if i % 4 == 0:
        loss = loss + 1e-3 * tied.weight.pow(2).sum()
    adam.zero_grad()
    loss.backward()
    adam.step()
    if i % 2:
        rows.step()
        emb.weight.grad = None
        tied.weight.grad = None
        kept.weight.grad.zero_()
    if i % 35 == 0:
        print(i, loss.item(), flush=True)
print("end", emb.weight.sum().item(), kept.weight.sum().item(), tied.weight.sum().item())
