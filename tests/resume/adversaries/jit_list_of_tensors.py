# Tries: tensors in a C++ list that only a scripted module reaches.
# expected: either
from typing import List
import torch
from torch import nn, Tensor

torch.manual_seed(0)


class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept: List[Tensor] = [torch.zeros(8)]

    def forward(self, x: Tensor) -> Tensor:
        self.kept.append(x.detach().mean(0))
        if len(self.kept) > 20:
            self.kept.pop(0)
        return x + 0.2 * torch.stack(self.kept).mean(0)


memory = torch.jit.script(Memory())
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(900):
    x = memory(X[(i * 16) % 320:][:16])
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), memory(X[:2]).sum().item())
