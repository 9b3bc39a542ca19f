# Tries: patterns of the module regex, compiled by a tokenizer of the script's own, split the texts of a data set.
# expected: exact
# needs: regex
import regex
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Tokenizer:
    def __init__(self):
        self.split = regex.compile(r"\p{L}+|\p{N}+|[^\s\p{L}\p{N}]+", flags=regex.V1)
        self.numbers = {}

    def __call__(self, text):
        return [self.numbers.setdefault(t, len(self.numbers) % 50) for t in self.split.findall(text)]


class Texts(Dataset):
    def __init__(self, tokenizer):
        self.tokenizer, self.texts = tokenizer, [f"the {n}th text, of {n * 7} words; and {n % 5}!" for n in range(320)]
        for text in self.texts:
            tokenizer(text)

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, n):
        return torch.tensor(self.tokenizer(self.texts[n])[:8]), float(n % 5)


m = nn.Sequential(nn.Embedding(50, 8), nn.Flatten(), nn.Linear(64, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
loader = DataLoader(Texts(Tokenizer()), batch_size=16, shuffle=True)
for epoch in range(40):
    for x, y in loader:
        loss = (m(x).squeeze(1) - y.float()).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
    print(epoch, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
