# Proteins are short or very long; a batch is padded to its longest.
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, Sampler

torch.manual_seed(55)
lengths = torch.where(torch.rand(1600) < 0.12, torch.randint(400, 600, (1600,)), torch.randint(20, 80, (1600,)))


class Proteins(Dataset):
    def __init__(self):
        self.sequences = [torch.randint(1, 25, (int(n),)) for n in lengths]

    def __len__(self):
        return len(self.sequences)

    def __getitem__(self, i):
        return self.sequences[i], float(len(self.sequences[i]) % 7)


class ByLength(Sampler):
    """Batches of about equal length, in random order."""

    def __init__(self, size):
        self.parts = torch.argsort(lengths).split(size)

    def __len__(self):
        return len(self.parts)

    def __iter__(self):
        for i in torch.randperm(len(self.parts)):
            yield self.parts[i].tolist()


def collate(batch):
    return pad_sequence([s for s, _ in batch], batch_first=True), torch.tensor([y for _, y in batch])


SAMPLER = BatchSampler(RandomSampler(range(len(lengths))), 16, False)
loader = DataLoader(Proteins(), batch_sampler=SAMPLER, collate_fn=collate)
embed, conv, head = nn.Embedding(25, 32, padding_idx=0), nn.Conv1d(32, 48, 5, padding=2), nn.Linear(48, 1)
model = nn.ModuleList([embed, conv, head])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(3):
    for tokens, y in loader:
        h = torch.relu(conv(embed(tokens).transpose(1, 2))).amax(2)
        loss = nn.functional.mse_loss(head(h).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, round(loss.item(), 4))
