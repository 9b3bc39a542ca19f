# Tries: a Tensor subclass with attributes and __torch_function__ that counts; attributes hung onto plain tensors and parameters.
# expected: either
import torch
from torch import nn

torch.manual_seed(0)


class Tracked(torch.Tensor):
    calls = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Tracked.calls += 1
        out = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(out, Tracked):
            out.age = 1 + max((getattr(a, "age", 0) for a in args if isinstance(a, Tracked)), default=0)
        return out


state = torch.zeros(8).as_subclass(Tracked)
state.age = 0
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
for p in m.parameters():
    p.ema = torch.zeros_like(p)
    p.touched = 0
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(900):
    x = X[(i * 16) % 320:][:16]
    state = state * 0.9 + x.mean(0)
    loss = (m(x + 0.1 * state.as_subclass(torch.Tensor)).squeeze(1) - x.sum(1)).pow(2).mean() * (1 + 0.001 * (Tracked.calls % 7))
    o.zero_grad()
    loss.backward()
    o.step()
    for p in m.parameters():
        p.ema.lerp_(p.detach(), 0.1)
        p.touched += int(p.grad.abs().max() > 0.5)
    if i % 25 == 0:
        print(i, loss.item(), state.age, Tracked.calls, [p.touched for p in m.parameters()], flush=True)
print("final", sum(p.ema.double().sum().item() for p in m.parameters()), state.as_subclass(torch.Tensor).sum().item(), Tracked.calls)
