"""An optimizer of its own that asks for state that is not there."""
import torch


class NoisySGD(torch.optim.Optimizer):
    def __init__(self, params, lr=0.01, noise=0.0):
        super().__init__(params, dict(lr=lr, noise=noise))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                if state["step"] > 5:
                    p.add_(state["momentum"], alpha=-group["lr"])  # here
                else:
                    p.add_(p.grad + group["noise"] * torch.randn_like(p), alpha=-group["lr"])
        return loss


torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
opt = NoisySGD(model.parameters(), lr=0.1, noise=0.01)
for i in range(10):
    opt.zero_grad()
    loss = model(torch.ones(2, 4)).pow(2).mean()
    loss.backward()
    opt.step()
    print(i, round(float(loss), 4))
