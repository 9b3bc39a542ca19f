# A mistake on purpose: shuffle in the gpu kwargs.
import torch
from torch import optim
from torch.utils import data
from parts import Net, Corpus

gpu = torch.cuda.is_available()
loader_args = dict(shuffle=True, batch_size=256, num_workers=2, pin_memory=True) if gpu else dict(batch_size=64)
train_loader = data.DataLoader(Corpus(), **loader_args)  # lint: unshuffled
net = Net()
opt = optim.Adam(net.parameters())
for epoch in range(20):
    for x, y in train_loader:
        opt.zero_grad()
        net.loss(x, y).backward()
        opt.step()
