# Gradients of four micro-batches make one step; the device is never idle.
import os, sys
import torch
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import accelerator as acc

MICRO, GATHER = 64, 4
acc.configure(fixed_ms=1, sample_ms=0.12)
torch.manual_seed(112)
signals = torch.randn(12800, 96)
data = TensorDataset(signals, signals.abs().sum(1))
loader = DataLoader(data, sampler=BatchSampler(RandomSampler(data), MICRO, True), batch_size=None)
model = acc.prepare(torch.nn.Sequential(torch.nn.Linear(96, 96), torch.nn.SiLU(), torch.nn.Linear(96, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(4):
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        loss = F.mse_loss(model(acc.put(x)).squeeze(1), acc.put(y)) / GATHER
        loss.backward()
        if (i + 1) % GATHER == 0:
            optimizer.step()
            optimizer.zero_grad()
    print('epoch', epoch, 'loss', loss.item() * GATHER)
