# needs: sklearn
# expected: exact
"""scikit-learn, and scipy with it, imported behind torch: their own objects in C are made while the script is watched."""
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import make_moons
from sklearn.metrics import accuracy_score
from torch import nn

torch.manual_seed(0)
x, y = make_moons(400, noise=0.1, random_state=0)
near = KMeans(4, n_init=1, random_state=0).fit(x).transform(x)
x, y = torch.tensor(near, dtype=torch.float32), torch.tensor(y)
net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.Adam(net.parameters(), 1e-3)
for epoch in range(60):
    for at in torch.randperm(400).split(20):
        loss = nn.functional.cross_entropy(net(x[at]), y[at])
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        print(epoch, loss.item(), accuracy_score(y.numpy(), net(x).argmax(1).numpy()))
