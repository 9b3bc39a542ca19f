# Inception-like blocks on 32x32 pictures: a pooled branch, pointwise convolutions, a depthwise one.
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(cin, cout // 2, 1, bias=False), nn.BatchNorm2d(cout // 2))
        self.straight = nn.Sequential(nn.Conv2d(cin, cout // 2, 1, bias=False), nn.BatchNorm2d(cout // 2))
        self.depthwise = nn.Conv2d(cout, cout, 3, 1, 1, groups=cout)

    def forward(self, x):
        return torch.relu(self.depthwise(torch.cat([self.pooled(x), self.straight(x)], 1)))


class Net(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, 1, 1)
        self.body = nn.Sequential(Block(32, 32), nn.MaxPool2d(2), Block(32, 64), Block(64, 64))
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(64, classes)

    def forward(self, x):
        return self.fc(self.pool(self.body(self.stem(x))).flatten(1))


def train(epochs=8):
    torch.manual_seed(14)
    pictures = torch.randn(640, 3, 32, 32)
    labels = torch.randint(10, (640,))
    loader = DataLoader(TensorDataset(pictures, labels), batch_size=16, shuffle=True)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        print("epoch", epoch, "loss", loss.item())


if __name__ == "__main__":
    train()
