# The running loss of an epoch is a tensor that remembers every step.
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(640, 8), torch.randint(0, 3, (640,)))
loader = DataLoader(data, batch_size=32, shuffle=True)
model = nn.Linear(8, 3)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    running_loss = 0.0
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        running_loss += loss  # lint: loss-graph
    print(epoch, running_loss / len(loader))
