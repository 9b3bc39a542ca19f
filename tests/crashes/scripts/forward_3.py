"""A transformer block in a package; a label out of range."""
import torch
from forwardlib import Attention, criterion
from torch import nn

torch.manual_seed(1)
model = nn.ModuleDict({"embed": nn.Embedding(30, 16), "attend": Attention(16, 4), "head": nn.Linear(16, 5)})
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)

history = []
for epoch in range(3):
    for batch in range(4):
        tokens = torch.randint(0, 30, (2, 6))
        labels = torch.randint(0, 5, (2,))
        if epoch == 2:
            labels[1] = 5  # one class too many
        loss = criterion(model["head"](model["attend"](model["embed"](tokens)).mean(1)), labels)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        history.append(loss.item())
    print(f"epoch {epoch}: {sum(history[-4:]) / 4:.3f}")
