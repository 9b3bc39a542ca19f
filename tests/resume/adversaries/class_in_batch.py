# Tries: batches are objects of the script's own that know a class, and where and when they are from
# expected: exact
import collections
import datetime
import decimal
import fractions
import pathlib
import uuid

import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)


Parts = collections.namedtuple("parts", "x rows")  # under another name than its own


class Batch:
    def __init__(self, rows):
        self.x = torch.stack(rows)
        self.parts = Parts(self.x * 2, len(rows))
        self.kind = torch.Tensor
        self.of = Batch
        self.place = pathlib.Path("data") / str(len(rows))
        self.day = datetime.date(2026, 11, len(rows))
        self.share = fractions.Fraction(len(rows), 400), decimal.Decimal(len(rows)) / 400
        self.name = uuid.UUID(int=len(rows))


m = nn.Linear(4, 1)
o = torch.optim.SGD(m.parameters(), 0.01)
for epoch in range(10):
    for batch in DataLoader(list(torch.randn(400, 4)), 4, shuffle=True, collate_fn=Batch):
        loss = m(batch.x + batch.parts.x).pow(2).mean() * (batch.kind is torch.Tensor) * (batch.of is type(batch))
        o.zero_grad()
        loss.backward()
        o.step()
    print(epoch, loss.item(), batch.place, batch.day, *batch.share, batch.name)
