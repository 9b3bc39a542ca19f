# A little MobileNet: depthwise and pointwise convolutions on 32x32 pictures.
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def separable(cin, cout, stride):
    return nn.Sequential(
        nn.Conv2d(cin, cin, 3, stride, 1, groups=cin, bias=False), nn.BatchNorm2d(cin), nn.ReLU(inplace=True),
        nn.Conv2d(cin, cout, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class MobileNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, 1, 1)
        self.body = nn.Sequential(separable(32, 64, 2), separable(64, 64, 1), separable(64, 128, 2), separable(128, 128, 1))
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(128, classes)

    def forward(self, x):
        return self.fc(self.pool(self.body(self.stem(x))).flatten(1))


def train(epochs=10):
    torch.manual_seed(14)
    pictures = torch.randn(640, 3, 32, 32)
    labels = torch.randint(10, (640,))
    loader = DataLoader(TensorDataset(pictures, labels), batch_size=32, shuffle=True)
    model = MobileNet()
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
