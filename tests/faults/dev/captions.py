# Next-word model over captions of different lengths; batches are padded in collate_fn.
import random
import torch
from torch import nn
from torch.utils.data import DataLoader

random.seed(3)
torch.manual_seed(3)
VOCAB, PAD, WIDTH = 500, 0, 96
captions = [[random.randrange(1, VOCAB) for _ in range(random.randint(40, WIDTH))] for _ in range(4000)]


def pad_batch(batch):
    longest = max(len(c) for c in batch)
    tokens = torch.zeros(len(batch), longest, dtype=torch.long)
    mask = torch.zeros(len(batch), longest)
    for i, caption in enumerate(batch):
        for j, word in enumerate(caption):
            tokens[i, j] = word
            mask[i, j] = 1.0
    return tokens, mask


class CaptionModel(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.conv = nn.Conv1d(dim, dim, 3, padding=2)
        self.out = nn.Linear(dim, 64)

    def forward(self, tokens):
        h = self.conv(self.embed(tokens).transpose(1, 2))[..., : tokens.size(1)]
        return self.out(torch.relu(h).transpose(1, 2))


model = CaptionModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(captions, batch_size=16, shuffle=True, collate_fn=pad_batch)
for epoch in range(5):
    seen = total = 0.0
    for tokens, mask in loader:
        optimizer.zero_grad()
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten() % 64, reduction="none")
        loss = (loss * mask[:, 1:].flatten()).sum() / mask[:, 1:].sum()
        loss.backward()
        optimizer.step()
        total, seen = total + loss.item(), seen + 1
    print(f"{epoch} {total / seen:.4f}")
