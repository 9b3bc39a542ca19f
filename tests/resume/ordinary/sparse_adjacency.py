# Label propagation on a graph: a sparse adjacency is a buffer of the model and a constant of the script, evaluated without gradients.
# expected: exact
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(31)
n, classes = 200, 3
label = torch.randint(0, classes, (n,))
edges = torch.randint(0, n, (2, 1200))
keep = (label[edges[0]] == label[edges[1]]) | (torch.rand(1200) < 0.2)
edges = torch.cat([edges[:, keep], torch.arange(n).repeat(2, 1)], 1)
adjacency = torch.sparse_coo_tensor(edges, torch.ones(edges.size(1)), (n, n)).coalesce()
degree = torch.sparse.sum(adjacency, dim=1).to_dense()
features = torch.randn(n, 6) + F.one_hot(label, 6).float()
train, test = torch.arange(0, 80), torch.arange(80, n)


class Propagate(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("a", adjacency.to_sparse_csr())
        self.one, self.two, self.drop = nn.Linear(6, 24), nn.Linear(24, classes), nn.Dropout(0.3)

    def forward(self, x):
        h = F.relu(self.a @ self.drop(self.one(x)) / degree[:, None])
        return torch.sparse.mm(adjacency, self.two(h)) / degree[:, None]


model = Propagate()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-4)
best = 0.0
for epoch in range(600):
    model.train()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(features)[train], label[train])
    loss.backward()
    optimizer.step()
    if epoch % 15 == 0:
        model.eval()
        with torch.no_grad():
            guess = model(features).argmax(1)
            spread = torch.sparse.mm(adjacency, F.one_hot(guess, classes).float()).argmax(1)
        right = (spread[test] == label[test]).float().mean().item()
        best = max(best, right)
        print(f"{epoch} {loss.item():.6f} {right:.3f} best {best:.3f}", flush=True)
print("final", best, sum(p.double().sum().item() for p in model.parameters()))
