# needs: torch_geometric
# expected: exact
"""Graphs are classified: batches of PyTorch Geometric are of a class that is made on the way, and lead back to themselves."""
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool

torch.manual_seed(0)
graphs = []
for n in range(320):
    size = 6 + n % 5
    x, edges = torch.randn(size, 4), torch.randint(0, size, (2, 3 * size))
    graphs.append(Data(x=x, edge_index=edges, y=torch.tensor([n % 2]), name=f"graph {n}"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GINConv(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16)))
        self.out = nn.Linear(16, 2)

    def forward(self, graph):
        return self.out(global_add_pool(self.conv(graph.x, graph.edge_index).relu(), graph.batch, size=graph.num_graphs))


net = Net()
opt = torch.optim.Adam(net.parameters(), 1e-3)
train, test = DataLoader(graphs[:256], 16, shuffle=True), DataLoader(graphs[256:], 16)
for epoch in range(60):
    total = 0.0
    for graph in train:
        loss = nn.functional.cross_entropy(net(graph), graph.y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * graph.num_graphs
    with torch.no_grad():
        right = sum(int((net(graph).argmax(1) == graph.y).sum()) for graph in test)
    print(epoch, total / 256, right / 64, graph.name[-1], flush=True)
