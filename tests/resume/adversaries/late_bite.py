# Tries: state that is written all the time and read only in the last epoch: buffers, counters in forward, a table of hard examples.
# short: yes
# expected: either
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)
        self.register_buffer("seen", torch.zeros(8), persistent=False)
        self.quiet = torch.zeros(8)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        self.seen += x.detach().mean(0)
        self.quiet = self.quiet * 0.999 + x.detach().std(0)
        return self.b(self.a(x).relu()).squeeze(1)


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
hard, history = torch.zeros(320), []
for epoch in range(60):
    for i in range(20):
        x = X[i * 16:(i + 1) * 16]
        if epoch == 59:
            x = x + m.seen * 1e-3 + m.quiet * 1e-3 + m.calls * 1e-6 + hard[i * 16:(i + 1) * 16, None] * 1e-2 + torch.stack(history).mean() * 1e-3
        each = (m(x) - x.sum(1)).pow(2)
        loss = each.mean()
        o.zero_grad()
        loss.backward()
        o.step()
        hard[i * 16:(i + 1) * 16] += each.detach()
        history.append(loss.detach())
    print(epoch, flush=True)
print("final", loss.item(), sum(p.double().sum().item() for p in m.parameters()), m.calls, hard.sum().item(), len(history))
