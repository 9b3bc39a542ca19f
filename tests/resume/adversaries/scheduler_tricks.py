# Tries: schedulers with closures over mutable state, chains, tensor learning rates, per-parameter options, hooks on step, state cleared.
# expected: either
import torch
from torch import nn
from torch.optim import lr_scheduler as S

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.Adam([{"params": m[0].parameters(), "lr": torch.tensor(1e-2)}, {"params": m[2].parameters(), "lr": 5e-3, "mine": [0]}], foreach=False)
factor = [1.0]
hits = {"pre": 0, "post": 0}
o.register_step_pre_hook(lambda *a: hits.__setitem__("pre", hits["pre"] + 1))
o.register_step_post_hook(lambda opt, a, k: opt.param_groups[1]["mine"].append(hits["pre"]) if hits["pre"] % 90 == 0 else None)
one = S.LambdaLR(o, lambda e: factor[0] / (1 + e / 800))
two = S.SequentialLR(torch.optim.SGD(m.parameters(), 1e-3), [], [10]) if False else None
other = torch.optim.NAdam(m[2].parameters(), 1e-3)
chain = S.ChainedScheduler([S.ConstantLR(other, 0.5, 100), S.ExponentialLR(other, 0.999)])
cyc = S.CosineAnnealingWarmRestarts(other, 70)
for i in range(900):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 3 == 0:
        other.step()
        chain.step() if i < 450 else cyc.step()
    if loss < 0.7:
        factor[0] *= 0.99
    one.step()
    if i % 200 == 150:
        o.state[m[2].weight].clear()
        other.state.clear()
    if i == 500:
        other = torch.optim.RAdam(m[2].parameters(), 1e-3)
        cyc = S.StepLR(other, 30, 0.9)
    if i % 25 == 0:
        print(i, loss.item(), one.get_last_lr(), other.param_groups[0]["lr"], factor, flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), hits, o.param_groups[1]["mine"])
