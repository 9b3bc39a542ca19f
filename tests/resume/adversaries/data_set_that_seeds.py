# Tries: a data set whose code names torch.manual_seed (of a generator of its own), read by two workers that are started anew in each epoch: torch's compiler hangs an address on that function.
# expected: exact
import torch
import torch._dynamo  # as torchvision does
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Views(Dataset):
    def __init__(self, n):
        self.data = torch.rand(n, 8, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        noise = torch.Generator().manual_seed(i)
        return self.data[i] + 0.01 * torch.randn(8, generator=noise), self.data[i] * (0.9 + 0.2 * torch.rand(8))


loader = DataLoader(Views(320), 16, shuffle=True, num_workers=2)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
o = torch.optim.Adam(m.parameters(), 1e-2)
for epoch in range(30):
    total = 0.0
    for a, b in loader:
        loss = (m(a) - m(b)).pow(2).mean() + (m(a) - a).pow(2).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        total += loss.item()
    print(epoch, total, flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
