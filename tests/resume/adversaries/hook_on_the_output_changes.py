# Tries: a forward registers a hook on its output that clips the gradient, and one on an inner output that notes how large it was; the loop prints the notes.
# expected: exact
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.largest, self.calls = 0.0, 0

    def forward(self, x):
        h = self.a(x).relu()
        out = self.b(h)
        if self.training:
            h.register_hook(self.note)
            out.register_hook(lambda grad: grad.clamp(-0.05, 0.05))
        return out

    def note(self, grad):
        self.calls += 1
        self.largest = max(self.largest, grad.abs().max().item())


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), m.calls, m.largest, flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), m.calls)
