# Tries: pictures of matplotlib, one that stays open and is drawn anew, and figures that are closed and wait for the collector.
# needs: matplotlib
# expected: exact
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import nn

torch.manual_seed(0)
x = torch.linspace(-3, 3, 400).unsqueeze(1)
y = torch.sin(x) + 0.1 * torch.randn_like(x)
net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), lr=0.01)
figure, (left, right) = plt.subplots(1, 2, figsize=(6, 3))
losses = []
for epoch in range(40):
    order = torch.randperm(400)
    for at in range(0, 400, 20):
        chosen = order[at:at + 20]
        loss = (net(x[chosen]) - y[chosen]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    if epoch % 8 == 0:
        left.clear()
        left.plot(losses, label="loss")
        left.legend()
        with torch.no_grad():
            right.clear()
            right.scatter(x.numpy(), y.numpy(), s=1)
            right.plot(x.numpy(), net(x).numpy())
        figure.tight_layout()
        figure.savefig("now.png")
    if epoch % 10 == 3:
        plt.figure(figsize=(4, 3))
        plt.plot(losses)
        plt.savefig(f"loss_{epoch}.png")
        plt.close()
    print(epoch, f"{losses[-1]:.9f}", flush=True)
torch.save(net.state_dict(), "net.pt")
