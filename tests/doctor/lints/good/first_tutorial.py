# Nothing wrong here: first tutorial.
import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(8 * 26 * 26, 10)

    def forward(self, x):
        x = torch.relu(self.conv(x))
        return self.fc(self.drop(torch.flatten(x, 1)))


def train(model, device, loader, optimizer, criterion, epoch):
    model.train()
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        if i % 50 == 0:
            print(f"epoch {epoch} {i}/{len(loader)} loss {loss.item():.4f}")


@torch.no_grad()
def test(model, device, loader):
    model.eval()
    right = 0
    for x, y in loader:
        right += (model(x.to(device)).argmax(1).cpu() == y).sum().item()
    return right / len(loader.dataset)


def main():
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train_loader = DataLoader(datasets.MNIST("data", transform=transforms.ToTensor()), 64, shuffle=True)
    test_loader = DataLoader(datasets.MNIST("data", train=False, transform=transforms.ToTensor()), 1000)
    model = Net().to(device)
    optimizer = optim.SGD(model.parameters(), lr=0.05)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)
    for epoch in range(5):
        train(model, device, train_loader, optimizer, nn.CrossEntropyLoss(), epoch)
        print(test(model, device, test_loader))
        scheduler.step()
    torch.save(model.state_dict(), "mnist.pt")


if __name__ == "__main__":
    main()
