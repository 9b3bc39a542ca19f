# Tries: set-up traces the model once, to count its operations; the model that is trained is the plain one.
# expected: exact
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(320, 8)
m = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
traced = torch.jit.trace(m, X[:4])
print("operations", sum(node.kind().startswith("aten::") for node in traced.inlined_graph.nodes()), flush=True)
del traced
o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(1200):
    x = X[(i * 16) % 320:][:16]
    loss = (m(x).squeeze(1) - x.sum(1)).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    if i % 25 == 0:
        print(i, loss.item(), flush=True)
print("final", sum(p.double().sum().item() for p in m.parameters()))
