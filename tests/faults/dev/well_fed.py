# Sensor classifier on the accelerator; batches are cut from tensors in memory.
import os
import sys
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import accelerator

accelerator.configure(fixed_ms=2, sample_ms=0.1)
torch.manual_seed(100)
x = torch.randn(12800, 64)
y = x[:, :8].argmax(1)
data = TensorDataset(x, y)
sampler = BatchSampler(RandomSampler(data), batch_size=128, drop_last=True)
loader = DataLoader(data, sampler=sampler, batch_size=None)
model = accelerator.prepare(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for epoch in range(8):
    total = torch.zeros(())
    for inputs, labels in loader:
        inputs, labels = accelerator.put(inputs), accelerator.put(labels)
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total = total + loss.detach()
    print(f"epoch {epoch}: {total.item() / len(loader):.4f}")
