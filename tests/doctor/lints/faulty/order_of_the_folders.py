# A mistake on purpose: order of the folders.
import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision import transforms as T


class Experiment:
    def __init__(self, root, epochs):
        self.epochs = epochs
        self.train_data = ImageFolder(root + "/train", T.ToTensor())
        self.train_loader = DataLoader(dataset=self.train_data, batch_size=64, drop_last=True)  # lint: unshuffled
        self.net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(10))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def run(self):
        for epoch in range(self.epochs):
            self.epoch()

    def epoch(self):
        for x, y in self.train_loader:
            self.opt.zero_grad()
            torch.nn.functional.cross_entropy(self.net(x), y).backward()
            self.opt.step()


Experiment("data", 10).run()
