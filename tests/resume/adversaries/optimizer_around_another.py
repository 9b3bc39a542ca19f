# Tries: an optimizer whose step calls that of another one, of which the state dict knows nothing.
# expected: exact
import torch
from torch import nn
from torch.optim import Adam, Optimizer


class Lookahead(Optimizer):
    def __init__(self, base, k=5, alpha=0.5):
        super().__init__(base.param_groups, {})
        self.base, self.k, self.alpha = base, k, alpha
        self.param_groups = base.param_groups

    @torch.no_grad()
    def step(self, closure=None):
        loss = self.base.step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["since"], state["slow"] = 0, p.detach().clone()
                state["since"] += 1
                if state["since"] % self.k == 0:
                    state["slow"] += self.alpha * (p - state["slow"])
                    p.copy_(state["slow"])
        return loss


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))
opt = Lookahead(Adam(net.parameters(), lr=0.01))
for step in range(600):
    x = torch.randn(32, 8)
    loss = nn.functional.mse_loss(net(x), x.sum(1, keepdim=True))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(step, f"{loss.item():.9f}", flush=True)
torch.save(net.state_dict(), "net.pt")
