# Tries: tokenizers made in C, held by a data set and only read.
# expected: exact
# needs: tokenizers tiktoken
import tiktoken
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn

torch.manual_seed(0)
words = "the cat sat on a mat and looked at dogs who ran".split()
fast = Tokenizer(models.WordLevel({"[UNK]": 0, **{w: n + 1 for n, w in enumerate(words)}}, unk_token="[UNK]"))
fast.pre_tokenizer = pre_tokenizers.Whitespace()
bytewise = tiktoken.Encoding("small", pat_str=r"\w+|\s+", mergeable_ranks={bytes([n]): n for n in range(256)}, special_tokens={})


class Text(torch.utils.data.Dataset):
    def __init__(self):
        self.fast, self.bytewise = fast, bytewise

    def __len__(self):
        return 320

    def __getitem__(self, n):
        text = " ".join(words[(n * k) % len(words)] for k in range(1, 7))
        return torch.tensor(self.fast.encode(text).ids), torch.tensor(self.bytewise.encode(text)[:8])


loader = torch.utils.data.DataLoader(Text(), batch_size=16, shuffle=True)
e, f = nn.Embedding(16, 8), nn.Embedding(256, 8)
head = nn.Linear(16, 1)
params = [*e.parameters(), *f.parameters(), *head.parameters()]
o = torch.optim.Adam(params, 1e-2)
for epoch in range(60):
    for a, b in loader:
        loss = (head(torch.cat([e(a).mean(1), f(b).mean(1)], 1)).squeeze(1) - a.float().mean(1)).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
    print(epoch, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in params))
