# REINFORCE with a baseline over many little bandits at once, entropy bonus, vectorised, logged to a csv by hand.
# expected: exact
import csv
import torch
from torch import nn, optim
from torch.distributions import Normal

torch.manual_seed(8)
N = 64
targets = torch.linspace(-1, 1, N).unsqueeze(1)


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.mu = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.zeros(1))

    def dist(self, s):
        return Normal(self.mu(s), self.log_std.exp())


actor, critic = Actor(), nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
opt_a, opt_c = optim.Adam(actor.parameters(), 3e-3), optim.Adam(critic.parameters(), 1e-2)
sched = optim.lr_scheduler.LinearLR(opt_a, 1.0, 0.1, 600)
with open("returns.csv", "w", newline="") as f:
    out = csv.DictWriter(f, ["step", "reward", "std", "entropy"])
    out.writeheader()
    for step in range(600):
        s = targets + 0.05 * torch.randn(N, 1)
        d = actor.dist(s)
        a = d.sample()
        reward = -(a - torch.sin(3 * targets)).pow(2)
        value = critic(s)
        adv = (reward - value).detach()
        loss_a = -(d.log_prob(a) * adv).mean() - 0.001 * d.entropy().mean()
        loss_c = (reward - value).pow(2).mean()
        opt_a.zero_grad()
        loss_a.backward()
        opt_a.step()
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()
        sched.step()
        if step % 20 == 0:
            row = {"step": step, "reward": reward.mean().item(), "std": actor.log_std.exp().item(), "entropy": d.entropy().mean().item()}
            out.writerow(row)
            print(", ".join(f"{k}={v:.4f}" if k != "step" else f"{k}={v}" for k, v in row.items()), flush=True)
