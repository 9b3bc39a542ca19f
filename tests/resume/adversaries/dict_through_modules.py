# Tries: modules put what they compute into the dictionary that they are given, within a module that gives it back
# short: yes
# expected: exact
import collections
import torch
torch.manual_seed(0)
class A(torch.nn.Module):
    def __init__(self): super().__init__(); self.l = torch.nn.Linear(4, 3)
    def forward(self, f): f["tok"] = self.l(f["x"]); return f
class B(torch.nn.Module):
    def forward(self, f): f.update({"emb": f["tok"] * 2}); return f
class M(torch.nn.Sequential):
    def forward(self, f):
        for m in self: f = m(f)
        return f
class Features(collections.UserDict): pass
m = M(A(), B()); opt = torch.optim.SGD(m.parameters(), lr=0.001)
def encode(x):
    with torch.no_grad(): return m.forward(Features({"x": x}))["emb"].sum().item() + m.forward({"x": x})["emb"].sum().item()
for i in range(1200):
    loss = m({"x": torch.ones(2, 4)})["emb"].pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step()
    if i % 50 == 0: print(i, loss.item(), encode(torch.ones(1, 4)))
