# Tries: weights that are computed anew in each call, by parametrizations, by hooks of the older kind, by pruning in the middle of training; hooks that come and go, numbered by torch in one row.
# expected: exact
import torch
from torch import nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations, parametrize, prune, spectral_norm

torch.manual_seed(0)


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-1, -2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = parametrizations.spectral_norm(nn.Linear(16, 24))
        self.b = parametrizations.weight_norm(nn.Linear(24, 24))
        self.c = nn.Linear(24, 24)
        parametrize.register_parametrization(self.c, "weight", Symmetric())
        self.d = spectral_norm(nn.Linear(24, 24))
        self.e = nn.Linear(24, 2)

    def forward(self, x):
        h = F.elu(self.a(x))
        if h.requires_grad:
            h.register_hook(lambda g: g * 0.99)
        return self.e(F.elu(self.d(F.elu(self.c(F.elu(self.b(h)))))))


net = Net()
opt = torch.optim.Adam(net.parameters(), 2e-3)
target, seen = torch.randn(16), []
for step in range(900):
    x = torch.randn(64, 16)
    loss = F.cross_entropy(net(x), (x @ target > 0).long())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 150 == 100:
        prune.l1_unstructured(net.e, "weight", amount=0.1)
    if step % 40 == 0:
        handle = net.a.register_forward_hook(lambda module, args, out: seen.append(out.mean().item()))
        with torch.no_grad():
            net(x)
        print(step, loss.item(), flush=True)
        handle.remove()
print(len(seen), seen[-1])
torch.save(net.state_dict(), "net.pt")
