# Tries: the whole training step (backward, optimizer, values, prints, files) happens inside a Module's forward.
# every: 1s
# expected: either
import torch
from torch import nn

torch.manual_seed(0)


class Trainer(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.o = torch.optim.Adam(net.parameters(), 1e-2)
        self.steps, self.history = 0, []

    def forward(self, x, y):
        loss = (self.net(x).squeeze(1) - y).pow(2).mean()
        self.o.zero_grad()
        loss.backward()
        self.o.step()
        self.steps += 1
        self.history.append(loss.item())
        if self.steps % 25 == 0:
            print(self.steps, loss.item(), flush=True)
            with open("history.txt", "a" if self.steps > 25 else "w") as f:
                f.write(f"{self.steps} {loss.item()}\n")
        return loss.detach()


X = torch.randn(320, 8)
trainer = Trainer(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1)))
total = torch.zeros(())
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    total = total + trainer(x, x.sum(1))
print("final", total.item(), trainer.steps, sum(trainer.history))
