# Tries: a data set prints in its worker first, and later appends to a file that was opened before the workers were
# leftovers
# expected: refused
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Data(Dataset):
    def __init__(self, notes):
        self.x, self.notes = torch.randn(640, 8), notes

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        if i == 0:
            print("the first one", flush=True)
        if i % 64 == 40:
            self.notes.write(f"{i}\n")
            self.notes.flush()
        return self.x[i]


notes = open("notes.txt", "a")
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
loader = DataLoader(Data(notes), 16, num_workers=1)
for epoch in range(40):
    for x in loader:
        loss = (m(x)[:, 0] - x.sum(1)).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
    print(epoch, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), len(open("notes.txt").readlines()))
