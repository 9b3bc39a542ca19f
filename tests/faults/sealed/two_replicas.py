"""Data parallel as in the old days: copies of the model, scattered batch, gathered outputs."""
import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Parallel(nn.Module):
    def __init__(self, module, replicas=4):
        super().__init__()
        self.module, self.replicas = module, replicas

    def forward(self, x):
        parts = x.chunk(self.replicas)
        copies = [copy.deepcopy(self.module) for _ in parts]
        for twin in copies:
            for (name, p), q in zip(self.module.named_parameters(), list(twin.parameters())):
                owner = twin.get_submodule(name.rpartition(".")[0])
                del owner._parameters[name.rpartition(".")[2]]
                setattr(owner, name.rpartition(".")[2], p.clone())
        return torch.cat([twin(part) for twin, part in zip(copies, parts)])


def network():
    layers = [nn.Linear(64, 96), nn.ReLU()]
    for _ in range(6):
        layers += [nn.Linear(96, 96), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(96, 4))


torch.manual_seed(62)
x = torch.randn(6400, 64)
y = x[:, :4].argmax(1)
net = network()
model = Parallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
for epoch in range(4):
    for a, b in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(a), b)
        loss.backward()
        optimizer.step()
    print("epoch %d loss %.4f" % (epoch, loss.item()))
