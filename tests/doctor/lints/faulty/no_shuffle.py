# A mistake on purpose: no shuffle.
import torch
from torch import nn, optim
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

train_set = datasets.CIFAR10("data", train=True, transform=transforms.ToTensor())
test_set = datasets.CIFAR10("data", train=False, transform=transforms.ToTensor())
train_loader = DataLoader(train_set, batch_size=128, num_workers=0)  # lint: unshuffled
test_loader = DataLoader(test_set, batch_size=128)
net = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))
opt = optim.SGD(net.parameters(), lr=0.01)
ce = nn.CrossEntropyLoss()
for epoch in range(30):
    for i, (x, y) in enumerate(train_loader):
        opt.zero_grad()
        loss = ce(net(x), y)
        loss.backward()
        opt.step()
