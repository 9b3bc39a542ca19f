"""Character model that cuts its batches from one long tensor by itself."""
import math

import torch
import torch.nn as nn
from torch.nn import functional as F

block_size, batch_size, n_embd, max_iters = 48, 12, 64, 200
torch.manual_seed(1337)
text = ("to be or not to be that is the question " * 400)
chars = sorted(set(text))
data = torch.tensor([chars.index(c) for c in text])


def get_batch():
    ix = torch.randint(len(data) - block_size - 1, (batch_size,))
    return torch.stack([data[i:i + block_size] for i in ix]), torch.stack([data[i + 1:i + 1 + block_size] for i in ix])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        q, k, v = self.qkv(self.ln1(x)).split(n_embd, 2)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.mlp(self.ln2(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(len(chars), n_embd), nn.Embedding(block_size, n_embd)
        self.blocks, self.head = nn.Sequential(Block(), Block()), nn.Linear(n_embd, len(chars))

    def forward(self, idx, targets):
        logits = self.head(self.blocks(self.tok(idx) + self.pos.weight))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for it in range(max_iters):
    loss = model(*get_batch())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if it % 50 == 0:
        print(f"step {it}: loss {loss.item():.4f} perplexity {math.exp(loss.item()):.1f}")
