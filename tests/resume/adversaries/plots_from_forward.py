# Tries: a forward that draws into the figure that is open, of which a ghost, that runs no forward, has nothing.
# needs: matplotlib
# expected: refused
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import nn

torch.manual_seed(0)
x = torch.linspace(-3, 3, 400).unsqueeze(1)
y = torch.sin(x) + 0.1 * torch.randn_like(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
        self.calls = 0

    def forward(self, batch):
        out = self.inner(batch)
        self.calls += 1
        if self.calls % 20 == 0:
            plt.plot([self.calls], [out.mean().item()], "o")
        return out


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=0.01)
for epoch in range(40):
    order = torch.randperm(400)
    for at in range(0, 400, 20):
        chosen = order[at:at + 20]
        loss = (net(x[chosen]) - y[chosen]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    if epoch % 10 == 9:
        plt.savefig("now.png")
    print(epoch, f"{loss.item():.9f}", flush=True)
torch.save(net.state_dict(), "net.pt")
