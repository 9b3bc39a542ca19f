# Tries: forward fills lists and dicts that it was given, changes its arguments in place, returns plain Python and a generator.
# expected: either
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x, cache, losses, scratch):
        h = self.a(x).relu()
        cache["keys"] = torch.cat([cache["keys"], h.detach().mean(0, keepdim=True)])[-12:]
        cache["n"] = cache.get("n", 0) + 1
        losses.append(h.abs().mean() * 0.01)
        scratch.add_(h.detach().mean())
        return {"y": self.b(h + cache["keys"].mean(0)).squeeze(1), "n": cache["n"], "name": f"call {cache['n']}", "lazy": (v * 2 for v in [h.detach().sum()])}


X = torch.randn(320, 8)
m = Net()
o = torch.optim.Adam(m.parameters(), 1e-2)
cache, scratch, extra = {"keys": torch.zeros(1, 32)}, torch.zeros(3), []
lazy = torch.zeros(())
for i in range(1000):
    x = X[(i * 16) % 320:][:16]
    out = m(x, cache, extra, scratch)
    for v in out["lazy"]:
        lazy = 0.9 * lazy + v
    loss = (out["y"] - x.sum(1)).pow(2).mean() + sum(extra) + 1e-4 * (out["n"] % 5)
    extra.clear()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), out["name"], cache["n"], len(cache["keys"]), scratch[0].item(), lazy.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), cache["n"], scratch.sum().item())
