# Fine-tunes the last layer on the few labelled examples there are.
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(205)
backbone = nn.Sequential(nn.Linear(128, 256), nn.Tanh(), nn.Linear(256, 64), nn.Tanh())
for p in backbone.parameters():
    p.requires_grad = False
head = nn.Linear(64, 3)
examples = torch.randn(80, 128)
loader = DataLoader(TensorDataset(examples, examples[:, :3].argmax(1)), batch_size=16, shuffle=True)
optimizer = torch.optim.AdamW(head.parameters(), lr=1e-2)


def accuracy():
    with torch.no_grad():
        return (head(backbone(examples)).argmax(1) == examples[:, :3].argmax(1)).float().mean().item()


for epoch in range(4):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(head(backbone(x)), y)
        loss.backward()
        optimizer.step()
    print("epoch", epoch, "loss", loss.item(), "accuracy", accuracy())
print("done after", 4 * len(loader), "steps")
