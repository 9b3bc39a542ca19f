# Contrastive features with a memory bank; the bank lives on the host.
import os, sys
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import accelerator as acc

acc.configure(fixed_ms=4, sample_ms=0.05, gb_per_s=0.05)
torch.manual_seed(77)
images = torch.randn(4096, 512)
loader = DataLoader(TensorDataset(images, torch.arange(4096)), batch_size=64, shuffle=True, drop_last=True)
encoder = acc.prepare(torch.nn.Sequential(torch.nn.Linear(512, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)))
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05)
bank = F.normalize(torch.randn(4096, 64), dim=1)
momentum = 0.5


def normalise(x):
    x = F.normalize(x - x.mean(0), dim=1)
    return torch.tanh(x)


for epoch in range(6):
    for x, index in loader:
        x = acc.put(normalise(x))
        x = x.cpu()
        x = acc.put(x * 2 - 1)
        feature = F.normalize(encoder(x), dim=1)
        target = acc.put(bank[index])
        loss = 1 - (feature * target).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        host = feature.detach().cpu()
        feature = acc.put(host)
        bank[index] = F.normalize(momentum * bank[index] + (1 - momentum) * host, dim=1)
    print('epoch', epoch, 'loss', round(loss.item(), 4))
