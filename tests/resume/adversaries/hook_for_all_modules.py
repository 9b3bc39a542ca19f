# Tries: a hook for all modules packs what goes through them into a stream, which tells nothing of itself. Its length is seen at the end only.
# expected: refused
import zlib
import torch
from torch import nn

torch.manual_seed(0)
seen = zlib.compressobj()


def keep(module, args):
    seen.compress(args[0].detach().numpy().tobytes())


torch.nn.modules.module.register_module_forward_pre_hook(keep)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1600):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()), len(seen.flush()))
