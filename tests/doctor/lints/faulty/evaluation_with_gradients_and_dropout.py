# A mistake on purpose: evaluation with gradients and dropout.
import torch
from torch import nn
from torch.utils.data import DataLoader
from parts import train_set, test_set


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(20, 50)
        self.drop = nn.Dropout(0.5)
        self.b = nn.Linear(50, 2)

    def forward(self, x):
        return self.b(self.drop(torch.relu(self.a(x))))


train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
test_loader = DataLoader(test_set, batch_size=32)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
for epoch in range(10):
    for x, y in train_loader:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    correct = 0
    for x, y in test_loader:  # lint: evaluation-mode evaluation-grad
        correct += (model(x).argmax(1) == y).sum().item()
    print(epoch, correct)
